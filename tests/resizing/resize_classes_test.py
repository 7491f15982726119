"""`resize_classes`: kept classes, new classes, and further training."""

import keras
import numpy as np
import pytest

import tf_largeout as tflo
from tests.harness import multi_optimizer
from tests.resize_problem import (
    DIM,
    GROWN,
    KEPT,
    PERMUTATION,
    N,
    assert_moved,
    examples,
    fit,
    sampled_model,
    state,
)
from tests.slow import slow_but
from tf_largeout.classes.class_changes import ClassChange

OPTIMIZERS = {
    "lazy adam with momentum": lambda: tflo.optimizers.LazyAdam(0.01, row_beta_1=0.9),
    "lazy adagrad": lambda: tflo.optimizers.LazyAdagrad(0.1),
    "rowwise adagrad": lambda: tflo.optimizers.RowwiseAdagrad(0.1),
    "lazy sgd": lambda: tflo.optimizers.LazySGD(0.1, momentum=0.9),
    "keras adam": lambda: keras.optimizers.Adam(0.01),
    "keras momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=1.0),
    "adafactor": lambda: keras.optimizers.Adafactor(0.01),
    "averages": lambda: keras.optimizers.Adam(0.01, use_ema=True),
    "lazy adam with a schedule": lambda: tflo.optimizers.LazyAdam(
        keras.optimizers.schedules.CosineDecay(0.01, 20)
    ),
    "loss scale": lambda: keras.optimizers.LossScaleOptimizer(tflo.optimizers.LazyAdam(0.01)),
    "several": lambda: multi_optimizer(
        keras.optimizers.Adam(0.01), {"model/head/.*": tflo.optimizers.LazyAdagrad(0.1)}
    ),
}
_SUMS_OVER_CLASSES = ("adafactor", "keras momentum")  # their order changes the last bits


# The short cases of the two tests together cover slots of rows and of steps, means over rows,
# averages of weights, and optimizers that wrap others.
@pytest.mark.slow
@pytest.mark.parametrize("optimizer", slow_but(["loss scale"], OPTIMIZERS))
def test_a_permuted_model_trains_like_the_original(optimizer):
    model = sampled_model(OPTIMIZERS[optimizer]())
    x, y = examples()
    fit(model, x, y)
    before = state(model)
    permuted = tflo.resize_classes(model, N, PERMUTATION)
    assert_moved(before, state(permuted), PERMUTATION)
    assert_moved(before, state(model), np.arange(N))
    x, y = examples(seed=2)
    expected = fit(model, x, y)
    losses = fit(permuted, x, ClassChange(N, N, PERMUTATION).new_ids()[y])
    if optimizer in _SUMS_OVER_CLASSES:
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
        return
    assert losses == expected
    assert_moved(state(model), state(permuted), PERMUTATION)


@pytest.mark.parametrize("optimizer", slow_but(["averages"], OPTIMIZERS))
def test_kept_classes_keep_their_slots_and_new_classes_get_initial_slots(optimizer):
    model = sampled_model(OPTIMIZERS[optimizer](), "uniform")
    fit(model, *examples())
    grown = tflo.resize_classes(model, GROWN, KEPT)
    assert_moved(state(model), state(grown), KEPT)
    fresh = tflo.resize_classes(sampled_model(OPTIMIZERS[optimizer](), "uniform"), GROWN)
    for (name, values), (_, start) in zip(state(grown), state(fresh), strict=True):
        if values.shape[:1] != (GROWN,) or name == "embeddings":
            continue
        if name == "model_head_embeddings_average":
            start = grown.layers[-1].embeddings.numpy()
        np.testing.assert_array_equal(values[len(KEPT) :], start[len(KEPT) :], err_msg=name)
    fit(grown, *examples(num_classes=GROWN))


def test_new_rows_come_from_the_layer_or_an_initializer_or_an_array():
    model = sampled_model(embeddings_initializer="ones", bias_initializer="ones")
    rows = np.random.default_rng(0).normal(size=[GROWN - N, DIM])
    for initializer, expected in (
        (None, np.ones([GROWN - N, DIM])),
        ("zeros", np.zeros([GROWN - N, DIM])),
        (keras.initializers.Constant(0.5), np.full([GROWN - N, DIM], 0.5)),
        (rows, rows.astype("float32")),
        (rows.tolist(), rows.astype("float32")),
    ):
        head = tflo.resize_classes(model, GROWN, initializer=initializer).layers[-1]
        np.testing.assert_array_equal(head.embeddings[N:], expected)
        np.testing.assert_array_equal(head.bias[N:], 1)
        np.testing.assert_array_equal(head.embeddings[:N], model.layers[-1].embeddings)


def test_all_classes_may_be_new():
    for num_classes in (1, N, GROWN):
        sampler = tflo.samplers.UniformSampler(1)
        copy = tflo.resize_classes(sampled_model(sampler=sampler), num_classes, [])
        fit(copy, *examples(num_classes=num_classes))
    model = sampled_model(sampler="uniform")
    fit(model, *examples())
    all_new = tflo.resize_classes(model, N, [], "zeros")
    assert not all_new.layers[-1].embeddings.numpy().any()


def test_labels_of_removed_classes_raise_an_error_in_training():
    model = tflo.resize_classes(sampled_model(sampler="uniform"), 30)
    x, _ = examples()
    fit(model, x, np.full(len(x), 29))
    with pytest.raises(Exception, match="30"):
        fit(model, x, np.full(len(x), 30))


@pytest.mark.slow
def test_compile_arguments_and_the_learning_rate_are_kept():
    model = sampled_model(sampler="uniform")
    model.compile(
        tflo.optimizers.LazyAdam(0.01),
        tflo.losses.SampledSoftmaxLoss(reduction="sum"),
        metrics=[tflo.metrics.PrecisionAtK(3)],
        loss_weights=[2.0],
        steps_per_execution=3,
    )
    model.optimizer.build(model.trainable_variables)  # avoids a second trace
    fit(model, *examples())
    model.optimizer.learning_rate = 0.125
    grown = tflo.resize_classes(model, GROWN)
    assert float(grown.optimizer.learning_rate) == 0.125
    assert int(grown.optimizer.iterations) == 3 and grown.steps_per_execution == 3
    assert grown.loss.reduction == "sum" and grown.name == model.name
    assert set(grown.evaluate(*examples(), return_dict=True, verbose=0)) == {
        "loss",
        "precision_at_3",
    }


@pytest.mark.slow
def test_the_classes_of_metrics_are_resized():
    counts = np.arange(N) + 1
    model = sampled_model(sampler="uniform")
    metrics = [
        tflo.metrics.PropensityScoredPrecisionAtK(1, counts, num_examples=1_000),
        tflo.metrics.AveragePopularityAtK(3, counts),
        tflo.metrics.CatalogCoverageAtK(3, N),
        tflo.metrics.MacroRecallAtK(3, N),
    ]
    model.compile("sgd", tflo.losses.SoftmaxLoss(), metrics=metrics)
    x, y = examples()
    before = model.evaluate(x, y, verbose=0)
    permuted = tflo.resize_classes(model, N, PERMUTATION)
    new_ids = ClassChange(N, N, PERMUTATION).new_ids()
    np.testing.assert_allclose(permuted.evaluate(x, new_ids[y], verbose=0), before, rtol=1e-5)
    tflo.resize_classes(model, GROWN).evaluate(x, y, verbose=0)


def test_models_that_are_not_compiled_or_not_trained_can_be_resized():
    head = tflo.layers.LargeOutput(N)
    model = keras.Sequential([keras.Input([DIM]), head])
    grown = tflo.resize_classes(model, GROWN)
    assert not grown.compiled and grown.layers[-1].num_classes == GROWN
    compiled = tflo.resize_classes(sampled_model(sampler="uniform"), GROWN)
    assert int(compiled.optimizer.iterations) == 0
    fit(compiled, *examples())


def test_the_model_does_not_change_if_resizing_fails():
    model = sampled_model(sampler=tflo.samplers.UniformSampler(40))
    before = state(model)
    with pytest.raises(ValueError, match="cannot draw 40 distinct classes of 30"):
        tflo.resize_classes(model, 30)
    assert model.layers[-1].get_config()["num_classes"] == model.layers[-1].num_classes == N
    assert_moved(before, state(model), np.arange(N))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((0,), "num_classes=0"),
        ((GROWN, [N]), f"from 0 to {N - 1}. Received: {N}"),
        ((10, np.arange(11)), "names 11 classes, more than num_classes=10"),
        ((GROWN, None, np.zeros([3, DIM])), r"shape must be \(7, 5\). Received.*\(3, 5\)"),
        ((GROWN, None, np.full([7, DIM], np.nan)), "`initializer` must be finite"),
        ((GROWN, None, "no such"), "no such"),
    ],
)
def test_invalid_arguments_raise_an_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        tflo.resize_classes(sampled_model(), *arguments)


def _two_heads():
    x = keras.Input([DIM])
    heads = [tflo.layers.LargeOutput(N, name=name)(x) for name in ("one", "other")]
    return keras.Model(x, heads)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: keras.Sequential([keras.Input([3]), keras.layers.Dense(4)]), "has 0"),
        (_two_heads, "has 2 .'one', 'other'"),
        (lambda: keras.Sequential([tflo.layers.LargeOutput(N)]), "is not built"),
        (lambda: tflo.layers.LargeOutput(N), "must be a keras.Model"),
    ],
)
def test_models_that_cannot_be_resized_raise_an_error(make, message):
    with pytest.raises(ValueError, match=message):
        tflo.resize_classes(make(), GROWN)
