"""`LargeOutput(num_shards=K)` against one shard in `fit`, `evaluate`, `predict` and `top_k`."""

import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.slow import slow_but

N, STEPS, BATCH = 53, 200, 16
RNG = np.random.default_rng(2)
X = RNG.normal(size=(4 * BATCH, 5)).astype("float32")
Y = RNG.integers(0, N, 4 * BATCH)
SEVERAL = np.stack([Y, np.where(Y % 2, -1, (Y + 20) % N), (Y + 40) % N], axis=1)

# Name: loss, sampler, optimizer. All are bit-identical to one shard.
STATIC = {
    "uniform": ("SampledSoftmaxLoss", "uniform", "LazyAdam"),
    "log_uniform": ("NCELoss", "log_uniform", "LazyAdagrad"),
    "frequency": (
        "NegativeSamplingLoss",
        lambda: tflo.samplers.UnigramSampler(8, counts=np.arange(N) + 1, seed=1),
        "RowwiseAdagrad",
    ),
    "bernoulli": (
        "SampledSoftmaxLoss",
        lambda: tflo.samplers.BernoulliSampler(8, counts=np.arange(N) + 1, seed=1),
        "LazySGD",
    ),
    "repeats": (
        "SampledSoftmaxLoss",
        lambda: tflo.samplers.UniformSampler(30, unique=False, seed=1),
        "LazyAdam",
    ),
}


def new_model(num_shards, loss, sampler, optimizer, dtype=None, **kwargs):
    keras.utils.set_random_seed(7)
    if sampler in ("uniform", "log_uniform"):
        names = {"uniform": "UniformSampler", "log_uniform": "LogUniformSampler"}
        sampler = getattr(tflo.samplers, names[sampler])(12, seed=3)
    model = keras.Sequential(
        [
            keras.Input([5]),
            keras.layers.Dense(8, activation="tanh", dtype=dtype),
            tflo.layers.LargeOutput(
                N,
                sampler() if callable(sampler) else sampler,
                num_shards=num_shards,
                dtype=dtype,
            ),
        ]
    )
    metrics = [tflo.metrics.PrecisionAtK(1), tflo.metrics.PrecisionAtK(5)]
    optimizer = getattr(tflo.optimizers, optimizer)(0.05)
    model.compile(optimizer, getattr(tflo.losses, loss)(), metrics=metrics, **kwargs)
    model.optimizer.build(model.trainable_variables)  # avoids a second trace
    return model


def trained(*arguments, labels=Y, steps=STEPS, **kwargs):
    """Returns a model trained for a number of steps in two epochs, and its history."""
    model, times = new_model(*arguments, **kwargs), steps // 8
    x, y = np.tile(X, (times, 1)), np.concatenate([labels] * times)
    history = model.fit(x, y, BATCH, epochs=2, shuffle=False, verbose=0).history
    return model, history


one_shard = functools.cache(lambda name: trained(1, *STATIC[name]))


def weights(model):
    dense, head = model.layers
    _, bias = head.class_matrix.as_products()
    return [*dense.get_weights(), head.class_embeddings().numpy(), bias.numpy()]


def assert_equal(one, other):
    for expected, found in zip(one, other, strict=True):
        np.testing.assert_array_equal(found, expected)


# Each case, and each number of shards.
PAIRS = [*zip(STATIC, itertools.cycle([2, 3, 7]), strict=False), ("uniform", 3), ("uniform", 7)]


@pytest.mark.parametrize("name, num_shards", slow_but([("frequency", 7)], PAIRS))
def test_training_is_bit_identical_to_one_shard(name, num_shards):
    one, history = one_shard(name)
    sharded, sharded_history = trained(num_shards, *STATIC[name])
    assert sharded_history == history
    assert_equal(weights(one), weights(sharded))
    features = one.layers[0](X)
    for k in (1, 7, N):
        assert_equal(one.layers[1].top_k(features, k), sharded.layers[1].top_k(features, k))
    expected, found = (m.evaluate(X, Y, verbose=0, return_dict=True) for m in (one, sharded))
    assert found.pop("loss") == pytest.approx(expected.pop("loss"), rel=1e-6)
    assert found == expected
    np.testing.assert_allclose(
        sharded.predict(X, verbose=0), one.predict(X, verbose=0), rtol=1e-5, atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "case, num_shards",
    [("SoftmaxLoss", 2), ("several labels", 3), ("SoftmaxSampler", 7), ("top_k", 3)],
)
def test_sums_over_all_classes_differ_only_in_the_last_bits(case, num_shards):
    loss = case if case == "SoftmaxLoss" else "SampledSoftmaxLoss"
    sampler = {
        "SoftmaxSampler": lambda: tflo.samplers.SoftmaxSampler(8, seed=1),
        "top_k": lambda: tflo.samplers.TopKSampler(16, num_hard=4, seed=1),
        "SoftmaxLoss": None,
    }.get(case, "uniform")
    labels = SEVERAL if case == "several labels" else Y
    settings = {"labels": labels, "steps": 40}
    one, history = trained(1, loss, sampler, "LazyAdagrad", **settings)
    sharded, found = trained(num_shards, loss, sampler, "LazyAdagrad", **settings)
    for name, values in history.items():
        np.testing.assert_allclose(found[name], values, rtol=2e-4)
    for expected, values in zip(weights(one), weights(sharded), strict=True):
        np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"dtype": "mixed_bfloat16"},
        {"dtype": "mixed_float16"},
        {"steps_per_execution": 3},
        {"run_eagerly": True},
    ],
    ids=str,
)
def test_training_options_are_bit_identical_to_one_shard(settings):
    arguments = "SampledSoftmaxLoss", "uniform", "LazyAdam"
    one, history = trained(1, *arguments, steps=8, **settings)
    sharded, found = trained(3, *arguments, steps=8, **settings)
    assert found == history
    assert_equal(weights(one), weights(sharded))


@pytest.mark.slow
def test_a_low_precision_step_is_bit_identical_to_one_shard():
    one, sharded = (
        new_model(
            num_shards,
            "SampledSoftmaxLoss",
            "uniform",
            "LazyAdam",
            dtype="mixed_float16",
            run_eagerly=True,
        )
        for num_shards in (1, 3)
    )
    assert one.train_on_batch(X, Y) == sharded.train_on_batch(X, Y)
    assert_equal(weights(one), weights(sharded))


@pytest.mark.slow
def test_fit_builds_a_model_without_an_input():
    def model(num_shards):
        keras.utils.set_random_seed(7)
        sampler = tflo.samplers.UniformSampler(12, seed=3)
        model = keras.Sequential(
            [keras.layers.Dense(8), tflo.layers.LargeOutput(N, sampler, num_shards=num_shards)]
        )
        loss = tflo.losses.SampledSoftmaxLoss()
        model.compile(tflo.optimizers.LazyAdam(0.05), loss, run_eagerly=True)
        model.fit(X, Y, batch_size=2 * BATCH, shuffle=False, verbose=0)
        return model

    assert_equal(weights(model(1)), weights(model(3)))


def test_each_shard_has_a_range_of_rows():
    layer = tflo.layers.LargeOutput(10, num_shards=3, use_bias=False)
    layer.build((None, 4))
    assert [weight.shape for weight in layer.weights] == [(3, 4), (3, 4), (4, 4)]
    assert layer.embeddings is None
    again = tflo.layers.LargeOutput.from_config(layer.get_config())
    assert again.num_shards == 3
    rows = np.arange(40.0).reshape(10, 4)
    layer = tflo.layers.LargeOutput(
        10, num_shards=4, embeddings_initializer=rows, bias_initializer=np.arange(10)
    )
    layer.build((None, 4))
    np.testing.assert_array_equal(layer.class_embeddings(), rows)
    assert layer.class_biases().shape == [len(rows)]
    np.testing.assert_array_equal(layer.class_matrix.as_products()[1], np.arange(10))


@pytest.mark.parametrize(
    "arguments, message",
    [
        *(
            ({"num_shards": bad}, f"num_shards.*num_shards={bad}")
            for bad in (0, 1.5, True, None)
        ),
        ({"num_shards": N + 1}, f"num_shards={N + 1}, num_classes={N}"),
        (
            {"num_shards": 2, "embeddings": keras.layers.Embedding(N, 4)},
            "rows of another layer.*num_shards=2",
        ),
    ],
)
def test_an_invalid_number_of_shards_raises_an_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        tflo.layers.LargeOutput(N, **arguments)


class NeedsOneTable(tflo.samplers.UniformSampler):
    """A sampler that needs all rows in one variable."""

    needs_one_table = True


def test_a_sampler_that_needs_one_table_raises_an_error():
    layer = tflo.layers.LargeOutput(5_000, NeedsOneTable(4), num_shards=2)
    with pytest.raises(
        ValueError, match=r"NeedsOneTable of layer.*needs_one_table.*num_shards=1"
    ):
        layer.build((None, 8))
    assert not layer.weights
    layer.sampler = tflo.samplers.UniformSampler(4)
    layer.build((None, 8))


def test_shards_under_a_strategy_raise_an_error():
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        layer = tflo.layers.LargeOutput(N, num_shards=2)
        with pytest.raises(ValueError, match="num_shards=2.*MirroredStrategy.*num_shards=1"):
            layer.build((None, 8))


def test_resizing_to_fewer_classes_than_shards_raises_an_error():
    model = new_model(7, "SampledSoftmaxLoss", None, "LazyAdam")
    with pytest.raises(ValueError, match="Received: num_shards=7, num_classes=6"):
        tflo.resize_classes(model, 6)


@pytest.mark.slow
@pytest.mark.parametrize("ops", slow_but(["core"], ["core", "custom"]))
def test_exports_and_indexes_gather_the_rows(ops, tmp_path):
    model = new_model(3, "SampledSoftmaxLoss", "uniform", "LazyAdam", run_eagerly=True)
    model.train_on_batch(X, Y)
    features = model.layers[0](X)
    expected = model.layers[1].top_k(features, 5)
    rows, bias = model.layers[1].class_matrix.as_products()
    index = tflo.retrieval.BruteForceIndex()
    index.build(rows, bias)
    for found, want in zip(index.top_k(features, 5), expected, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5)
    tflo.serving.export(model, tmp_path / ops, k=5, ops=ops)
    answer = tf.saved_model.load(tmp_path / ops).signatures["serving_default"](
        features=tf.constant(X)
    )
    np.testing.assert_array_equal(answer["ids"], expected[1])
    scores, ids = tflo.retrieval.predict_top_k(model, X, 5, verbose=0)
    np.testing.assert_array_equal(ids, expected[1])
    np.testing.assert_allclose(scores, expected[0], rtol=1e-5)
