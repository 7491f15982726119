"""Measures steps of an output layer, alone or with an encoder, for `lab.factored.steps`."""

import dataclasses
import itertools
import time

import keras
import numpy as np
import tensorflow as tf

from benchmarks.harness import machine, own_process
from tf_largeout import layers, losses, optimizers, samplers

_RATE = 1e-3
_BATCHES = 8  # distinct batches, so that a step reads rows that the previous step did not load
_WARM_UP = 3


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of an output layer and its batch.

    Attributes:
        num_classes, dim, batch_size: As in the layers.
        num_sampled: Number of negatives of the methods that sample.
        context: Number of words from which an encoder computes the features; 0 without encoder.
        word_dim: Width of the encoder's word embeddings.
    """

    num_classes: int
    dim: int = 300
    batch_size: int = 128
    num_sampled: int = 1024
    context: int = 0
    word_dim: int = 100


def factored(loss):
    """Returns a function of a `Shape` that makes a step of a `FactoredOutput`."""

    def make(shape):
        layer = layers.FactoredOutput(shape.num_classes, learning_rate=_RATE)
        return _step_of_layer(layer, loss(), shape)

    return make


def ours(make_layer, loss):
    """Like `factored`, for another layer of this package, with row-sparse gradient descent."""

    def make(shape):
        return _step_of_layer(make_layer(shape), loss(), shape, optimizers.LazySGD(_RATE))

    return make


def stock(loss):
    """Like `factored`, for TensorFlow operations, with gradient descent by hand.

    Args:
        loss: Function of (features, kernel, bias, labels, shape) that returns the loss of each
            example. If it reads only some rows, only these are updated.
    """

    def make(shape):
        kernel = tf.Variable(_random_rows(shape))
        bias = tf.Variable(tf.zeros([shape.num_classes]))

        @tf.function
        def step(features, labels):
            with tf.GradientTape() as tape:
                tape.watch(features)
                value = tf.reduce_mean(loss(features, kernel, bias, labels, shape))
            by_features, *gradients = tape.gradient(value, [features, kernel, bias])
            for weight, gradient in zip((kernel, bias), gradients, strict=True):
                _descend(weight, gradient)
            return by_features

        return step

    return make


def dense(loss):
    """Like `factored`, for all logits: the gradient and the update of all rows.

    Args:
        loss: Function of logits `[batch, num_classes]` and labels `[batch]`.
    """

    def of_logits(features, kernel, bias, labels, _):
        return loss(tf.matmul(features, kernel, transpose_b=True) + bias, labels)

    return stock(of_logits)


def sampled_softmax(features, kernel, bias, labels, shape):
    """Returns TensorFlow's sampled softmax loss of each example."""
    return tf.nn.sampled_softmax_loss(
        kernel, bias, labels[:, tf.newaxis], features, shape.num_sampled, shape.num_classes
    )


def squared_error(logits, labels):
    """Returns the squared error to a one-hot target, for each example."""
    true = tf.gather(logits, labels, batch_dims=1)
    return tf.reduce_sum(logits**2, axis=1) - 2 * true + 1


def taylor_softmax(logits, labels):
    """Returns the cross entropy of the Taylor softmax for each example."""
    true = tf.gather(logits, labels, batch_dims=1)
    partition = tf.reduce_sum(1 + logits + logits**2 / 2, axis=1)
    return tf.math.log(partition) - tf.math.log(1 + true + true**2 / 2)


def softmax(logits, labels):
    """Returns the cross entropy of the softmax for each example."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


METHODS = {
    "factored, squared error": factored(losses.SquaredErrorLoss),
    "factored, spherical softmax": factored(losses.SphericalSoftmaxLoss),
    "factored, Taylor softmax": factored(losses.TaylorSoftmaxLoss),
    "factored, Z-loss": factored(losses.ZLoss),
    "dense, squared error": dense(squared_error),
    "dense, Taylor softmax": dense(taylor_softmax),
    "dense, softmax": dense(softmax),
    "tf.nn.sampled_softmax_loss": stock(sampled_softmax),
    "tf_largeout, sampled softmax": ours(
        lambda shape: layers.LargeOutput(
            shape.num_classes, samplers.UniformSampler(shape.num_sampled)
        ),
        losses.SampledSoftmaxLoss,
    ),
    "tf_largeout, hierarchical softmax": ours(
        lambda shape: layers.HierarchicalOutput(shape.num_classes),
        losses.HierarchicalSoftmaxLoss,
    ),
}


def measure(function, *args):
    """Calls `milliseconds`, or another function of `args`, in a new process; returns its dict.

    If TensorFlow or the system ends the process (out of memory), the dict contains the reason.
    """
    try:
        return own_process.call(function, *args)
    except (tf.errors.OpError, RuntimeError) as error:
        return {"error": str(error).splitlines()[0]}


def milliseconds(method, shape, steps, seconds):
    """Returns the median, 10th and 90th percentile of the time of a step, in this process.

    `cpu_ms` is the median of processor time, which other programs on the cores affect less.
    """
    step = METHODS[method](shape)
    random = np.random.default_rng(0)
    if shape.context:
        step = _with_encoder(step, shape)
        inputs = random.integers(
            shape.num_classes, size=[_BATCHES, shape.batch_size, shape.context]
        )
    else:
        inputs = random.normal(size=[_BATCHES, shape.batch_size, shape.dim]).astype("float32")
    labels = random.integers(shape.num_classes, size=[_BATCHES, shape.batch_size])
    batches = list(zip(map(tf.constant, inputs), map(tf.constant, labels), strict=True))
    each_batch = itertools.cycle(batches)
    first, _ = _seconds_of_calls(lambda: step(*next(each_batch)), _WARM_UP)
    times = max(3, min(steps, int(seconds / first[-1])))
    found, cpu = _seconds_of_calls(lambda: step(*next(each_batch)), times)
    low, median, high = 1e3 * np.percentile(found, [10, 50, 90])
    cpu_ms = 1e3 * np.median(cpu)
    return {"ms": median, "ms_10": low, "ms_90": high, "cpu_ms": cpu_ms, "steps": times}


def _with_encoder(step, shape):
    """Puts a word embedding and a hidden layer before the output layer, and trains them."""
    encoder = keras.Sequential(
        [
            keras.Input([shape.context], dtype="int64"),
            keras.layers.Embedding(shape.num_classes, shape.word_dim),
            keras.layers.Flatten(),
            keras.layers.Dense(shape.dim, "relu"),
        ]
    )
    weights, optimizer = encoder.trainable_variables, optimizers.LazySGD(_RATE)
    optimizer.build(weights)

    @tf.function
    def step_of_model(words, labels):
        with tf.GradientTape() as tape:
            features = encoder(words, training=True)
        by_features = step(features, labels)
        values = [weight.value for weight in weights]
        gradients = tape.gradient(features, values, output_gradients=by_features)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))

    return step_of_model


def _seconds_of_calls(function, times):
    """Returns the seconds and CPU seconds of each of `times` calls."""
    cpu = []

    def call():
        start = time.process_time()
        function()
        machine.finish()
        cpu.append(time.process_time() - start)

    return machine.seconds_of_calls(call, times), cpu


@tf.function
def _random_rows(shape):  # in a tf.function, TensorFlow scales in place, without a second copy
    return tf.random.normal([shape.num_classes, shape.dim], stddev=0.03)


def _descend(weight, gradient):
    if isinstance(gradient, tf.IndexedSlices):
        weight.scatter_sub(tf.IndexedSlices(_RATE * gradient.values, gradient.indices))
    else:
        weight.assign_sub(_RATE * gradient)


def _step_of_layer(layer, loss, shape, optimizer=None):
    layer.build((None, shape.dim))
    if optimizer is not None:
        optimizer.build(layer.trainable_variables)

    @tf.function
    def step(features, labels):
        with tf.GradientTape() as tape:
            tape.watch(features)
            value = loss(labels, layer(features, training=True))
        weights = layer.trainable_variables
        by_features, *gradients = tape.gradient(value, [features, *weights])
        if optimizer is not None:
            optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return by_features

    return step
