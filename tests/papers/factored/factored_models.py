"""Models that end in a `FactoredOutput`, and equal models with a dense layer."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_largeout import layers, losses

N, DIM, STEPS, BATCH = 23, 5, 6, 8
RATE = 0.05
LOSSES = {
    "squared_error": losses.SquaredErrorLoss,
    "spherical_softmax": losses.SphericalSoftmaxLoss,
    "taylor_softmax": losses.TaylorSoftmaxLoss,
    "z_loss": losses.ZLoss,
}
each_loss = pytest.mark.parametrize("name", LOSSES)


@contextlib.contextmanager
def _float64():
    before = keras.config.floatx()
    # Keras caches the dtype policy when a process creates its first layer, so set both.
    for change in (keras.config.set_floatx, keras.config.set_dtype_policy):
        change("float64")
    try:
        yield
    finally:
        for change in (keras.config.set_floatx, keras.config.set_dtype_policy):
            change(before)


in_float64 = _float64()  # a decorator; Keras also casts the data of `fit` to this dtype


class DenseLoss(keras.losses.Loss):
    """The formula of a loss, computed from all logits and differentiated by TensorFlow."""

    def __init__(self, name, **kwargs):
        super().__init__(name=name, **kwargs)

    def call(self, y_true, o):
        labels = tf.cast(y_true, tf.int32)
        if labels.shape.rank < o.shape.rank:
            labels = labels[..., tf.newaxis]
        counts = tf.reduce_sum(tf.one_hot(labels, N, dtype=o.dtype), axis=-2)
        weights = tf.math.divide_no_nan(counts, tf.reduce_sum(counts, -1, keepdims=True))
        if self.name == "squared_error":
            rows = tf.reduce_sum((o - tf.minimum(counts, 1)) ** 2, axis=-1)
        else:
            rows = tf.reduce_sum(weights * self._of_classes(o), axis=-1)
        rows._keras_mask = tf.reduce_any(labels >= 0, axis=-1)
        return rows

    def _of_classes(self, o):
        if self.name == "z_loss":
            mean = tf.reduce_mean(o, axis=-1, keepdims=True)
            z = (o - mean) / tf.math.reduce_std(o, axis=-1, keepdims=True)
            return tf.nn.softplus(np.sqrt(8 * np.log(N)) - z)
        p = 1 + o + o**2 / 2 if self.name == "taylor_softmax" else o**2 + 0.1
        return tf.math.log(tf.reduce_sum(p, axis=-1, keepdims=True)) - tf.math.log(p)


def data(rows=STEPS * BATCH - 3, seed=1, width=None):
    """Features and labels; the last batch is smaller."""
    random = np.random.default_rng(seed)
    shape = [rows] if width is None else [rows, width]
    return random.normal(size=[rows, DIM]), random.integers(0, N, shape)


def several_labels(rows=STEPS * BATCH - 3):
    """Up to three labels per example; some examples have none, some labels are repeated."""
    labels = np.random.default_rng(5).integers(-1, N, [rows, 3])
    labels[::7] = -1
    labels[1::5, 1] = labels[1::5, 0]
    return labels


def assert_close(found, expected, tolerance=1e-9):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def steps_of(layer):
    """Returns the number of steps that a head has taken."""
    return int(layer.class_matrix._weights.steps.numpy())


def bits(one):
    """Returns all weights of a model, to compare bit by bit."""
    return [weight.numpy().tobytes() for weight in one.weights]


def hidden_layer():
    return [keras.Input([DIM]), keras.layers.Dense(DIM, "tanh")]


def words():
    """Sequences of words, with 0 as padding, which Keras masks."""
    embedding = keras.layers.Embedding(9, DIM, mask_zero=True)
    return [keras.Input([4], dtype="int32"), embedding, keras.layers.Dense(DIM, "tanh")]


def nothing():
    return [keras.Input([DIM])]


def head(bias=True, rate=RATE, num_classes=N, dim=DIM, seed=2, **kwargs):
    random = np.random.default_rng(seed)
    return layers.FactoredOutput(
        num_classes,
        rate,
        use_bias=bias,
        embeddings_initializer=random.normal(size=[num_classes, dim]) / np.sqrt(dim),
        bias_initializer=random.normal(size=[num_classes]) / 2,
        **kwargs,
    )


def model(name="taylor_softmax", trunk=hidden_layer, reduction="sum_over_batch_size", **kwargs):
    """Returns a compiled model. Arguments that `head` does not take go to `compile`."""
    of_head = {k: kwargs.pop(k) for k in ("bias", "rate", "trainable", "dtype") if k in kwargs}
    result = keras.Sequential([*trunk(), head(**of_head)])
    options = {"optimizer": keras.optimizers.SGD(RATE), **kwargs}
    result.compile(loss=LOSSES[name](reduction=reduction), **options)
    result.optimizer.build(result.trainable_variables)  # avoids a second trace
    return result


class Pair:
    """A model, and an equal one with a dense layer, trained by SGD at the same rate."""

    def __init__(self, name, trunk=hidden_layer, bias=True, **kwargs):
        self.factored = model(name, trunk, bias=bias, **kwargs)
        self.head = self.factored.layers[-1]
        self.dense = keras.Sequential([*trunk(), keras.layers.Dense(N, use_bias=bias)])
        embeddings = self.head.class_embeddings().numpy()
        weights = [layer.get_weights() for layer in self.factored.layers[:-1]]
        weights.append([embeddings.T, self.head.bias.numpy()] if bias else [embeddings.T])
        for layer, values in zip(self.dense.layers, weights, strict=True):
            layer.set_weights(values)
        loss = DenseLoss(name, reduction=kwargs.pop("reduction", "sum_over_batch_size"))
        kwargs.pop("rate", None)
        options = {"optimizer": keras.optimizers.SGD(RATE), **kwargs}
        options["run_eagerly"] = "steps_per_execution" not in kwargs  # tracing takes longer
        self.dense.compile(loss=loss, **options)

    def fit(self, *args, **kwargs):
        """Fits both models and checks that they report the same losses."""
        kwargs = {"batch_size": BATCH, "shuffle": False, "verbose": 0, **kwargs}
        found, expected = (
            one.fit(*args, **kwargs).history["loss"] for one in (self.factored, self.dense)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        return self

    def check_equal(self, tolerance=1e-9):
        """Checks that both models have the same weights."""
        kernel, *bias = self.dense.layers[-1].get_weights()
        found = [self.head.class_embeddings()] + ([] if not bias else [self.head.bias])
        for one, other in zip(found, [kernel.T, *bias], strict=True):
            assert_close(one, other, tolerance)
        for one, other in zip(self.factored.layers[:-1], self.dense.layers[:-1], strict=True):
            for a, b in zip(one.get_weights(), other.get_weights(), strict=True):
                assert_close(a, b, tolerance)
        assert (self.head.bias is None) == (not bias)
