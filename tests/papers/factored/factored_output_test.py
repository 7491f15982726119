"""`FactoredOutput` as a Keras layer: steps, files, exact search and metrics."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tests.papers.factored import factored_models
from tests.papers.factored.factored_models import (
    BATCH,
    DIM,
    LOSSES,
    RATE,
    N,
    assert_close,
    bits,
    data,
    head,
    model,
    nothing,
    steps_of,
)
from tests.reference import metrics as reference
from tests.reference import spherical_losses
from tests.reference.factored_output import DenseLayer, with_labels
from tests.slow import slow_but
from tf_largeout import losses, metrics

X, Y = data(3 * BATCH)
X = X.astype("float32")


def trained(name="squared_error", **kwargs):
    """Returns a model whose U and omega have changed from their initial values."""
    one = model(name, run_eagerly=True, **kwargs)
    one.fit(X, Y, batch_size=BATCH, verbose=0)
    return one


def logits_of(layer, features):
    embeddings, bias = layer.class_embeddings().numpy(), layer.bias
    return features @ embeddings.T + (0 if bias is None else bias.numpy())


@keras.saving.register_keras_serializable(package="tests")
class Both(losses.ZLoss):
    """The sum of two losses."""

    def of_step(self, step):
        return super().of_step(step) + losses.TaylorSoftmaxLoss().of_step(step)


@pytest.mark.parametrize(
    "loss, metrics",
    slow_but(
        [(Both, [])], [(Both, []), (losses.ZLoss, [losses.ZLoss(), metrics.Perplexity()])]
    ),
    ids=["two losses", "the loss as a metric"],
)
def test_each_batch_takes_one_step(loss, metrics):
    one = model(optimizer="adam")
    one.compile("adam", loss(), metrics=metrics, run_eagerly=not metrics)
    one.optimizer.build(one.trainable_variables)  # avoids a second trace
    found = one.fit(X, Y, batch_size=BATCH, verbose=0).history
    assert steps_of(one.layers[-1]) == 3
    if metrics:
        np.testing.assert_allclose(found["z_loss"], found["loss"], rtol=1e-6)


def test_evaluation_and_prediction_change_no_weight():
    one = model()
    before = bits(one)
    one.evaluate(X, Y, verbose=0)
    one.predict(X, verbose=0)
    assert bits(one) == before


def test_a_frozen_layer_passes_gradients_through():
    frozen, free = model(trainable=False, run_eagerly=True), model(run_eagerly=True)
    free.set_weights(frozen.get_weights())
    for one in (frozen, free):
        before = [weight.numpy() for weight in one.layers[-1].weights]
        one.train_on_batch(X, Y)
        same = [
            np.array_equal(a, b)
            for a, b in zip(before, one.layers[-1].get_weights(), strict=True)
        ]
        assert all(same) == (one is frozen)
    for a, b in zip(*(one.layers[0].get_weights() for one in (frozen, free)), strict=True):
        assert_close(a, b, 1e-6)
    np.testing.assert_array_equal(steps_of(frozen.layers[-1]), 0)


def test_an_unfrozen_layer_trains_again():
    one = model(trainable=False, run_eagerly=True)
    one.train_on_batch(X, Y)
    one.layers[-1].trainable = True
    one.compile("sgd", losses.ZLoss(), run_eagerly=True)
    one.train_on_batch(X, Y)
    assert steps_of(one.layers[-1]) == 1


@pytest.mark.parametrize("eager", [False, True])
def test_it_trains_after_frozen_layers(eager):
    one = model(run_eagerly=eager)
    one.layers[0].trainable = False
    one.compile("adam", losses.TaylorSoftmaxLoss(), run_eagerly=eager)
    features = one.layers[0](X).numpy()
    dense = DenseLayer(
        one.layers[-1].class_embeddings().numpy(),
        one.layers[-1].bias.numpy(),
        spherical_losses.TaylorSoftmax(N),
    )
    one.train_on_batch(X, Y)
    dense.step(with_labels(features, Y[:, np.newaxis]), RATE)
    assert_close(one.layers[-1].class_embeddings(), dense.kernel, 1e-6)


def adam_model():
    keras.utils.set_random_seed(3)
    schedule = keras.optimizers.schedules.ExponentialDecay(RATE, 2, 0.5)
    return model("z_loss", rate=schedule, optimizer="adam", run_eagerly=True)


def fit(one):
    one.fit(X, Y, batch_size=BATCH, shuffle=False, verbose=0)


@pytest.mark.slow  # factored_folds_test.py resumes with folds
def test_resumed_equals_uninterrupted(tmp_path):
    harness.assert_resumed_equals_uninterrupted(adam_model, fit, fit, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["checkpoint", "weights"])
def test_a_run_resumed_from_weights_or_a_checkpoint_is_bit_identical(form, tmp_path):
    whole, resumed = adam_model(), adam_model()
    fit(whole)
    resumed.optimizer.build(resumed.trainable_variables)
    if form == "checkpoint":
        path = tf.train.Checkpoint(model=whole, optimizer=whole.optimizer).save(tmp_path / "a")
        checkpoint = tf.train.Checkpoint(model=resumed, optimizer=resumed.optimizer)
        checkpoint.restore(path).assert_consumed()
        assert "steps" in str(tf.train.list_variables(path))
    else:
        whole.save_weights(tmp_path / "a.weights.h5")
        resumed.load_weights(tmp_path / "a.weights.h5")
    for one in (whole, resumed):
        fit(one)
    assert bits(resumed) == bits(whole)
    for a, b in zip(whole.optimizer.variables, resumed.optimizer.variables, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("bias", [False, True])
def test_predictions_are_exact_logits_and_top_k_sorts_them(bias):
    one = trained(trunk=nothing, bias=bias)
    layer, expected = one.layers[-1], logits_of(one.layers[-1], X)
    np.testing.assert_allclose(one.predict(X, verbose=0), expected, rtol=1e-5, atol=1e-5)
    for absolute in (False, True):
        scored = np.abs(expected) if absolute else expected
        scores, ids = layer.top_k(X, 5, absolute=absolute)
        order = np.argsort(-scored, axis=1, kind="stable")[:, :5]
        np.testing.assert_array_equal(ids, order)
        found = np.take_along_axis(scored, order, 1)
        np.testing.assert_allclose(scores, found, rtol=1e-5, atol=1e-5)
    assert layer.class_embeddings().shape == (N, DIM)
    assert (layer.bias is None) == (not bias)


@pytest.mark.slow
def test_an_exported_model_gives_the_logits(tmp_path):
    one = trained(trunk=nothing)
    one.export(tmp_path / "model", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "model")
    np.testing.assert_allclose(
        loaded.serve(X), logits_of(one.layers[-1], X), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("name", slow_but(["z_loss"], LOSSES))
def test_evaluation_is_exact(name):
    one = trained(name, trunk=nothing)
    asked = {
        "precision_at_5": (metrics.PrecisionAtK(5, False), reference.precision_at_k, False),
        "recall_at_5": (metrics.RecallAtK(5, False), reference.recall_at_k, False),
        "p": (metrics.PrecisionAtK(5, True, name="p"), reference.precision_at_k, True),
        "perplexity": (metrics.Perplexity(False), reference.perplexity, False),
        "absolute": (metrics.Perplexity(True, name="absolute"), reference.perplexity, True),
    }
    kinds = [metric for metric, *_ in asked.values()]
    one.compile(loss=LOSSES[name](), metrics=kinds, run_eagerly=True)
    found = one.evaluate(X, Y, batch_size=BATCH, verbose=0, return_dict=True)
    logits = logits_of(one.layers[-1], X.astype("float64"))
    formula, targets = spherical_losses.LOSSES[name](N), np.eye(N)[Y]
    assert found["loss"] == pytest.approx(formula.of_logits(logits, targets).mean(), rel=1e-5)
    for key, (_, oracle, absolute) in asked.items():
        scores = np.abs(logits) if absolute else logits
        k = [] if oracle is reference.perplexity else [5]
        assert found[key] == pytest.approx(oracle(scores, Y[:, np.newaxis], *k), rel=1e-4)


def test_drift_reports_statistics_that_are_wrong():
    layer = trained().layers[-1]
    assert max(layer.drift().values()) < 1e-6
    state = layer.class_matrix._weights
    for name in ("gram", "total", "inverse"):
        before = getattr(state, name).numpy()
        getattr(state, name).assign(1.5 * before)
        assert layer.drift()[name] > 0.01
        getattr(state, name).assign(before)
    assert max(layer.drift().values()) < 1e-6


@pytest.mark.parametrize(
    "num_classes, dim, batch", [(1, 3, 4), (3, 8, 4), (3, 8, 1), (7, 2, 9)]
)
@pytest.mark.parametrize("name", slow_but(["taylor_softmax"], LOSSES))
def test_few_classes_wide_rows_and_various_batch_sizes(name, num_classes, dim, batch):
    if name == "z_loss" and num_classes == 1:
        pytest.skip("one logit has no deviation to divide by")
    layer = head(num_classes=num_classes, dim=dim, dtype="float64")
    layer.build([None, dim])
    dense = DenseLayer(
        layer.class_embeddings().numpy(),
        layer.bias.numpy(),
        spherical_losses.LOSSES[name](num_classes),
    )
    random = np.random.default_rng(0)
    labels = random.integers(0, num_classes, batch)
    features = tf.constant(random.normal(size=[batch, dim]))
    for _ in range(2):
        with tf.GradientTape() as tape:
            tape.watch(features)
            value = LOSSES[name](dtype="float64")(labels, layer(features, training=True))
        gradient = tape.gradient(value, features)
        expected = dense.step(with_labels(features, labels[:, np.newaxis]), RATE)
        assert_close(value, expected[0])
        assert_close(gradient, expected[1])
    assert_close(layer.class_embeddings(), dense.kernel)


@pytest.mark.parametrize(
    "labels, weights",
    [(Y[:0], None), (Y[:3], np.zeros(3)), (np.full([3], -1), None)],
    ids=["no rows", "weights of 0", "no labels"],
)
@factored_models.each_loss
def test_a_batch_of_zero_weight_changes_no_logit(name, labels, weights):
    rows = len(labels)
    layer, features = head(), tf.constant(X[:rows])
    layer.build([None, DIM])
    before = logits_of(layer, X)
    with tf.GradientTape() as tape:
        tape.watch(features)
        value = LOSSES[name]()(labels, layer(features, training=True), weights)
    np.testing.assert_array_equal(tape.gradient(value, features), np.zeros([rows, DIM]))
    np.testing.assert_array_equal(logits_of(layer, X), before)
    assert np.sum(value) == 0
