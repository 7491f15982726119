"""`ExactMetrics` and `SamplerHealth`, in `fit` with Keras's callbacks."""

import csv
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.reference.hardness import hardness_of_example
from tests.samplers import sampler_table
from tests.slow import slow_but
from tf_largeout.callbacks import ExactMetrics, SamplerHealth
from tf_largeout.samplers import InvertedFileSampler, UniformSampler

N, BATCH = 200, 16
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(64, 5)).astype("float32")
Y = RANDOM.integers(0, N, 64)
FORMED = {"scale": 2.0, "logit_soft_cap": 3.0}


def _model(sampler="uniform", **options):
    keras.utils.set_random_seed(1)
    output = tflo.layers.LargeOutput(N, sampler, name="output")
    model = keras.Sequential([keras.Input([5]), keras.layers.Dense(8), output])
    model.compile(
        tflo.optimizers.LazyAdam(0.03),
        tflo.losses.SampledSoftmaxLoss(),
        metrics=[tflo.metrics.PrecisionAtK(1)],
        **options,
    )
    return model


def _fit(model, *callbacks, epochs=2):
    options = {"batch_size": BATCH, "epochs": epochs, "verbose": 0, "shuffle": False}
    return model.fit(X, Y, callbacks=list(callbacks), **options)


def test_exact_metrics_are_those_of_evaluate_and_do_not_change_training():
    with_callback, without = _model(), _model()
    history = _fit(with_callback, ExactMetrics(X, Y, num_examples=None, every=3)).history
    expected = _fit(without).history
    for name, values in expected.items():
        np.testing.assert_array_equal(history[name], values)
    for one, other in zip(with_callback.get_weights(), without.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    history = _fit(with_callback, ExactMetrics(X, Y), epochs=1).history
    found = with_callback.evaluate(X, Y, verbose=0, return_dict=True)
    for name, value in found.items():
        np.testing.assert_allclose(history[f"exact_{name}"], [value], rtol=1e-6)


@pytest.mark.slow
def test_evaluations_within_an_epoch_and_a_sample(tmp_path):
    exact = ExactMetrics({"x": X}, Y, np.ones(64), num_examples=10, every=3)
    assert len(exact._y) == 10
    inputs = keras.Input([5], name="x")
    model = keras.Model({"x": inputs}, tflo.layers.LargeOutput(N, "uniform")(inputs))
    model.compile("sgd", tflo.losses.SampledSoftmaxLoss(), steps_per_execution=2)
    dataset = tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).batch(BATCH)
    whole = ExactMetrics(dataset)
    model.fit(dataset, callbacks=[exact, whole], epochs=2, shuffle=False, verbose=0)
    assert [one["step"] for one in exact.results] == [4, 6]
    model.save_weights(weights := tmp_path / "after.weights.h5")
    resumed = ExactMetrics(dataset, every=5)  # the model has made 8 steps
    model.fit(dataset, callbacks=[resumed], shuffle=False, verbose=0)
    assert [one["step"] for one in resumed.results] == [10]
    model.load_weights(weights)
    expected = model.evaluate(dataset, verbose=0)
    np.testing.assert_allclose(whole.results[-1]["loss"], expected, rtol=1e-6)


@pytest.mark.slow
def test_other_callbacks_see_the_numbers(tmp_path):
    stop = keras.callbacks.EarlyStopping("exact_loss", mode="min", min_delta=100, patience=1)
    log = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    sampler = tflo.samplers.InvertedFileSampler(16, num_hard=4, start_step=0)
    model = _model(sampler)
    exact = ExactMetrics(X, Y, num_examples=20)
    _fit(model, exact, SamplerHealth(), stop, log, epochs=9)
    with open(tmp_path / "log.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2  # the loss did not improve by 100
    health = sampler.health(model.get_layer("output"))
    assert float(rows[-1]["output_largest"]) == health["largest"] >= 1
    assert float(rows[-1]["output_started_at"]) == 0
    velocity = model.optimizer._velocities[2]
    share = np.any(velocity, axis=1).mean()
    assert 0 < share == pytest.approx(float(rows[-1]["output_trained_rows"]))


def _figures(model, *arguments, **options):
    """Returns what `SamplerHealth` adds to the logs at the end of an epoch."""
    health, logs = SamplerHealth(*arguments, **options), {}
    health.set_model(model)
    health.on_epoch_end(0, logs)
    return logs


@pytest.mark.parametrize(
    "num_shards, form",
    slow_but([(3, FORMED)], itertools.product([1, 3], [{}, FORMED])),
)
def test_hardness_is_the_share_of_the_softmax_that_negatives_have(num_shards, form):
    draws = np.random.default_rng(1)
    labels = np.where(np.arange(3) < draws.integers(1, 4, [20, 1]), Y[:60].reshape(20, 3), -1)
    sampler = InvertedFileSampler(30, num_hard=10, start_step=0, tail=UniformSampler(1, False))
    head = tflo.layers.LargeOutput(N, sampler, num_shards=num_shards, **form, name="output")
    model = keras.Sequential([keras.Input([5]), head])
    model.compile(loss="sampled_softmax_loss")
    for weight in head.trainable_weights:
        weight.assign(draws.normal(size=weight.shape))
    sampler.rebuild(head)
    found = _figures(model, X[:20], labels)["output_hardness"]
    features = head.queries(tf.constant(X[:20]))
    values = sampler.sample(features, labels, head, in_step=False)
    shared = np.tile(values.tail.sampled_candidates, [20, 1])
    ids = np.concatenate([values.head.sampled_candidates, shared], axis=1)
    assert any(len(set(row)) < 30 for row in ids)  # a repeated class counts once
    expected = [
        hardness_of_example(row, logits, own[own >= 0])[1]
        for row, logits, own in zip(ids, head(X[:20]).numpy(), labels, strict=True)
    ]
    assert 0.1 < found < 0.95
    np.testing.assert_allclose(found, np.mean(expected), rtol=1e-4)


def test_hardness_without_other_classes_is_0_and_of_all_others_1():
    model = _model(UniformSampler(N))
    model.compile(loss=model.loss)
    labels = np.tile(np.arange(N), [64, 1])
    assert _figures(model, X, labels)["output_hardness"] == 0
    assert _figures(model, X, Y)["output_hardness"] == pytest.approx(1, rel=1e-5)
    assert np.isnan(_figures(model, X, np.full(64, -1))["output_hardness"])


@pytest.mark.parametrize(
    "name", slow_but(["unigram", "inverted_file", "kernel_tree", "lsh"], sampler_table.SAMPLERS)
)
def test_measuring_hardness_changes_no_state(name, monkeypatch):
    monkeypatch.setattr(tf, "function", lambda function, **_: function)
    sampler = sampler_table.SAMPLERS[name](N, num_sampled=20, seed=3)
    head = tflo.layers.LargeOutput(N, sampler, name="output")
    model = keras.Sequential([keras.Input([4, 5]), head])
    model.compile(loss="sampled_softmax_loss")
    x, y = X.reshape(16, 4, 5), Y.reshape(16, 4)
    for _ in range(3):  # the search of some forms starts in the third step
        sampler.sample(X, y.reshape(-1, 1), head, previous=Y)
    before = [weight.numpy() for weight in model.weights]
    found = _figures(model, tf.data.Dataset.from_tensor_slices((x, y)).batch(16))
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight, value, err_msg=weight.path)
    assert 0 < found["output_hardness"] <= 1


@pytest.mark.slow  # the next tests compare the state with each sampler
def test_hardness_does_not_change_training():
    samplers = [InvertedFileSampler(16, num_hard=4, start_step=None, seed=2) for _ in range(2)]
    with_callback, without = (_model(one, run_eagerly=True) for one in samplers)
    found = _fit(with_callback, SamplerHealth(X, Y, num_examples=8)).history
    expected = _fit(without).history
    assert len(found["output_hardness"]) == 2
    np.testing.assert_array_equal(found["loss"], expected["loss"])
    for one, other in zip(with_callback.weights, without.weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(Y.astype("float32")[:, np.newaxis] + 0.5, marks=pytest.mark.slow),
        Y - 1000,
    ],
)
def test_after_rejected_labels_the_corrected_fit_works(wrong):
    model = _model()
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        model.fit(X, wrong, verbose=0)
    _fit(model, epochs=1)


@pytest.mark.slow
def test_after_an_error_of_a_metric_the_corrected_fit_works_with_the_same_optimizer():
    model = _model()
    optimizer, loss = model.optimizer, model.loss
    model.compile(optimizer, loss, metrics=[tflo.metrics.PrecisionAtK(500)])
    with pytest.raises(ValueError, match="Pass a smaller `k`"):
        model.fit(X, Y, verbose=0)
    model.compile(optimizer, loss, metrics=["precision_at_1"])
    _fit(model, epochs=1)
    assert optimizer.iterations == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_examples": 0}, "num_examples"),
        ({"every": 0}, "every"),
        ({"y": Y[:3]}, "as many rows"),
        ({"y": None}, "`y` must contain the labels"),
        ({"y": tf.RaggedTensor.from_row_lengths(Y, [1] * 64)}, "a RaggedTensor.*Dataset"),
        ({"y": tf.sparse.from_dense(np.eye(64))}, "a SparseTensor.*Dataset"),
    ],
)
def test_invalid_arguments_raise_an_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        ExactMetrics(**{"x": X, "y": Y, **arguments})


def test_invalid_arguments_of_sampler_health_raise_an_error():
    with pytest.raises(ValueError, match=r"labels.*Pass SamplerHealth\(x, y\)"):
        SamplerHealth(X)
    with pytest.raises(ValueError, match="num_examples"):
        SamplerHealth(X, Y, num_examples=0)


@pytest.mark.slow
@pytest.mark.parametrize("as_input", [np.asarray, tf.constant])
def test_inputs_of_exact_metrics_can_be_strings(as_input):
    lookup = keras.layers.StringLookup(vocabulary=["a", "b"])
    layers = [lookup, keras.layers.Embedding(3, 4), tflo.layers.LargeOutput(N)]
    model = keras.Sequential([keras.Input([], dtype="string"), *layers])
    model.compile("sgd", "softmax_loss", run_eagerly=True)
    words, labels = as_input(["a", "b", "a", "b"]), np.arange(4)
    exact = ExactMetrics(words, labels, num_examples=3)
    model.fit(tf.constant(words), labels, callbacks=[exact], verbose=0)
    assert np.isfinite(exact.results[0]["loss"])
