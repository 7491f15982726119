"""Errors of `FactoredOutput`: steps that would make U singular, training modes, arguments."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness, replicas
from tests.papers.factored.factored_models import (
    BATCH,
    DIM,
    RATE,
    N,
    bits,
    data,
    head,
    hidden_layer,
    model,
    nothing,
    steps_of,
)
from tf_largeout import layers, losses, metrics

X, Y = data(3 * BATCH)
X = X.astype("float32")


def singular_rate(one):
    """Returns the rate at which U becomes singular in the direction of the first row of `X`."""
    features = one.layers[0](X[:1]).numpy()
    return 1 / (2 * (1 + np.sum(features.astype("float64") ** 2)))


@pytest.mark.parametrize(
    "change, message",
    [
        ("rate", "learning rate"),
        ("features", "must be finite"),
        ("labels", r"\[0, 23\)"),
        ("weights", "`sample_weight` of SquaredErrorLoss must be finite"),
        ("no deviation", "by_q must be finite.*is nan"),
    ],
)
def test_a_failing_step_changes_no_weight(change, message):
    one, x, y, weights = model("squared_error"), X[:1], Y[:1], np.ones(1)
    layer = one.layers[-1]
    if change == "rate":
        layer.learning_rate = singular_rate(one)
    elif change == "features":
        x = x * np.nan
    elif change == "labels":
        y = y + N
    elif change == "weights":
        weights = weights * np.nan
    else:  # equal rows have a standard deviation of 0
        one = keras.Sequential(
            [*hidden_layer(), layers.FactoredOutput(N, RATE, embeddings_initializer="zeros")]
        )
        one.compile("sgd", losses.ZLoss())
    before = bits(one)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        one.train_on_batch(x, y, weights)
    assert bits(one) == before


KERAS_LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.mark.parametrize("trunk", [nothing, hidden_layer])
@pytest.mark.parametrize(
    "loss, message",
    [
        (KERAS_LOSS, "cannot be trained with this loss.*supports `TaylorSoftmaxLoss`"),
        (
            losses.SoftmaxLoss(),
            "cannot be trained with this loss.*supports `TaylorSoftmaxLoss`",
        ),
        (losses.SampledSoftmaxLoss(), "Sampled.*cannot be used.*Use `TaylorSoftmaxLoss`"),
    ],
)
def test_training_with_a_loss_that_needs_all_logits_raises_an_error(trunk, loss, message):
    one = model(trunk=trunk)
    one.compile("sgd", loss)
    with pytest.raises(ValueError, match=message):
        one.train_on_batch(X, Y)
    assert steps_of(one.layers[-1]) == 0


def test_a_frozen_layer_accepts_a_loss_of_keras():
    one = model(trainable=False)
    one.compile("sgd", KERAS_LOSS)
    before = one.layers[0].get_weights()[0]
    value = one.train_on_batch(X, Y)
    assert np.isfinite(value) and np.any(one.layers[0].get_weights()[0] != before)


def test_evaluation_with_a_loss_that_needs_all_logits_is_exact():
    one = model(trunk=nothing)
    one.compile(loss=losses.SoftmaxLoss(), run_eagerly=True)
    expected = KERAS_LOSS(Y, one.predict(X, verbose=0))
    assert one.evaluate(X, Y, verbose=0) == pytest.approx(float(expected), rel=1e-5)


def test_other_layers_do_not_accept_its_losses():
    logits = layers.LargeOutput(N)(X, training=True)
    with pytest.raises(ValueError, match="ZLoss cannot be used with the LargeOutput"):
        losses.ZLoss()(Y, logits)


def test_gradient_accumulation_raises_an_error():
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="gradient_accumulation_steps=2.*use larger batches"):
        model(optimizer=optimizer).fit(X, Y, verbose=0)
    scaled = keras.optimizers.LossScaleOptimizer(optimizer)
    with pytest.raises(ValueError, match="gradient_accumulation_steps=2"):
        model(optimizer=scaled).fit(X, Y, verbose=0)


def test_xla_is_turned_off_or_raises_an_error():
    with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
        one = model(jit_compile=True)
    one.train_on_batch(X, Y)
    assert steps_of(one.layers[-1]) == 1
    one = keras.Sequential(hidden_layer())
    one.compile("sgd", losses.ZLoss(), jit_compile=True)
    one.add(head())  # after Keras has checked the layers
    with pytest.raises(ValueError, match="XLA cannot.*jit_compile=True. Leave that out"):
        one.fit(X, Y, verbose=0)


def test_several_replicas_raise_an_error():
    with replicas.two_replicas().scope():
        with pytest.raises(ValueError, match="several replicas.*a strategy of 2 replicas"):
            model()


def test_low_precision_weights_raise_an_error():
    with pytest.raises(ValueError, match="float32 or float64.*'bfloat16'. Use 'mixed_b"):
        head(dtype="bfloat16").build([None, DIM])


def test_searching_float64_weights_raises_an_error():
    layer = head(dtype="float64")
    layer.build([None, DIM])
    with pytest.raises(ValueError, match="float32 weights.*'vectors' of dtype float64"):
        layer.top_k(X, 1)


@pytest.mark.parametrize("bad", [0, -1, np.nan, np.inf, "1", None, True])
def test_an_invalid_learning_rate_raises_an_error(bad):
    message = "`learning_rate` must be a number above 0.0. Received: learning_rate="
    with pytest.raises(ValueError, match=message):
        head(rate=bad)
    layer = head()
    layer.build([None, DIM])
    with pytest.raises(ValueError, match=message):
        layer.learning_rate = bad
    assert layer.learning_rate == RATE


def test_a_schedule_cannot_be_replaced_with_a_number():
    layer = head(rate=keras.optimizers.schedules.ExponentialDecay(1.0, 10, 0.5))
    with pytest.raises(ValueError, match="is a schedule.*Received: learning_rate=0.1"):
        layer.learning_rate = 0.1


@pytest.mark.parametrize(
    "rate",
    [0.5, keras.optimizers.schedules.ExponentialDecay(1.0, 10, 0.5)],
    ids=["number", "schedule"],
)
def test_config_round_trip(rate):
    made = layers.FactoredOutput(
        N, rate, use_bias=False, embeddings_initializer="he_normal", name="head"
    )
    clone = harness.config_round_trip(made)
    assert isinstance(clone.learning_rate, type(rate))
    made.build([None, DIM])
    assert made.get_config() == clone.get_config()


def test_the_config_omits_arrays():
    config = head().get_config()
    assert "normal" not in str(config) and len(str(config)) < 1000


@pytest.mark.parametrize(
    "ask",
    [
        lambda layer: layer.top_k(X, 1),
        lambda layer: layer.class_embeddings(),
        lambda layer: layer.bias,
        lambda layer: layer.drift(),
    ],
)
def test_an_unbuilt_layer_raises_an_error(ask):
    with pytest.raises(ValueError, match="not built yet"):
        ask(head())


@pytest.mark.parametrize("bad", [0, 2.5, None])
def test_an_invalid_number_of_probes_raises_an_error(bad):
    layer = head()
    layer.build([None, DIM])
    with pytest.raises(ValueError, match="`num_probes` must be"):
        layer.drift(bad)


def test_top_k_of_features_that_are_not_finite_raises_an_error():
    layer = head()
    layer.build([None, DIM])
    for absolute in (False, True):
        with pytest.raises(tf.errors.InvalidArgumentError, match="must be finite"):
            layer.top_k(np.full([1, DIM], np.nan), 1, absolute=absolute)


@pytest.mark.slow
def test_training_metrics_report_perplexity_and_nan_for_ranks():
    kinds = [metrics.PrecisionAtK(1), metrics.Perplexity()]
    one = model(metrics=kinds, run_eagerly=True)
    found = one.fit(X, Y, verbose=0).history
    assert np.isnan(found["precision_at_1"]).all()
    np.testing.assert_allclose(found["perplexity"], np.exp(found["loss"]), rtol=1e-5)
