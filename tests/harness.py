"""What the tests of layers and losses share: heads with known weights and known samples."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_largeout import layers, samplers


def multi_optimizer(default, others):
    """Keras's optimizer that trains some variables by `others`, one for each name pattern."""
    if not hasattr(keras.optimizers, "OptimizerMap"):
        pytest.skip("Keras before 3.15 has no MultiOptimizer")
    return keras.optimizers.MultiOptimizer(keras.optimizers.OptimizerMap(default, others))


class FixedSampler(samplers.Sampler):
    """Gives the `SampledValues` it was made with, whatever it is asked."""

    counts_are = "probabilities"  # which all losses take

    def __init__(self, sampled_values):
        super().__init__(num_sampled=int(sampled_values.sampled_candidates.shape[-1]), seed=1)
        self.sampled_values = sampled_values

    def sample(self, features, labels, layer):
        return self.sampled_values


class FixedSearch(samplers.HardNegativeSampler):
    """Finds the classes it was made with; the tail is a `FixedSampler` of the values given."""

    def __init__(self, ids, tail_values):
        num_hard, num_tail = len(ids[0]), len(tail_values.sampled_candidates)
        super().__init__(num_hard + num_tail, num_hard, FixedSampler(tail_values), seed=1)
        self.ids = ids

    def search(self, features, labels, layer):
        return tf.constant(self.ids, tf.int64)


def sampled_values(candidates, true_count, sampled_count):
    return samplers.SampledValues(
        tf.constant(candidates, tf.int64),
        tf.constant(true_count, tf.float32),
        tf.constant(sampled_count, tf.float32),
    )


def built_head(embeddings, bias=None, sampler=None, **kwargs):
    """A `LargeOutput` with the given weights."""
    num_classes, dim = embeddings.shape
    head = layers.LargeOutput(num_classes, sampler=sampler, use_bias=bias is not None, **kwargs)
    head.build((None, dim))
    head.embeddings.assign(embeddings)
    if bias is not None:
        head.bias.assign(bias)
    return head


def pad(rows):
    """Lists of class ids as int64 `[B, L]`, padded with -1."""
    width = max(len(row) for row in rows)
    return np.array([[*row, *[-1] * (width - len(row))] for row in rows], np.int64)


def loss_and_gradients(loss, head, features, labels, **kwargs):
    """The loss in training, and its dense gradients by features, embeddings and bias."""
    features = tf.convert_to_tensor(features)
    variables = [v for v in head.class_matrix.variables() if v is not None]
    with tf.GradientTape() as tape:
        tape.watch(features)
        value = loss(labels, head(features, training=True), **kwargs)
    gradients = tape.gradient(value, [features, *variables])
    return value.numpy(), [tf.convert_to_tensor(g).numpy() for g in gradients]


def public_classes(module, base):
    """The names of the public concrete subclasses of `base` that `module` exports."""
    return {
        name
        for name, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, base)
        and keras.saving.get_registered_name(member).startswith("tf_largeout>")
    }


def assert_resumed_equals_uninterrupted(make_model, fit_first, fit_rest, folder):
    """Saves a model after `fit_first`; loaded and fit further, it has the bits of a whole run.

    Args:
        make_model: Makes the same compiled model each time.
        fit_first, fit_rest: Fit the model they are given.
        folder: Where to save it.
    """
    whole, first = make_model(), make_model()
    for model in (whole, first):
        fit_first(model)
    first.save(folder / "model.keras")
    resumed = keras.models.load_model(folder / "model.keras")
    for model in (whole, resumed):
        fit_rest(model)
    for a, b in zip(whole.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def config_round_trip(instance):
    """Serialises and deserialises, and checks that nothing changes."""
    config = keras.saving.serialize_keras_object(instance)
    clone = keras.saving.deserialize_keras_object(config)
    assert type(clone) is type(instance)
    assert clone.get_config() == instance.get_config()
    return clone
