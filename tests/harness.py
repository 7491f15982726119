"""Helpers for tests of layers and losses: heads with known weights and known samples."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_largeout import layers, samplers


def multi_optimizer(default, others):
    """Returns a Keras optimizer that uses `others` for variables with matching names."""
    if not hasattr(keras.optimizers, "OptimizerMap"):
        pytest.skip("Keras before 3.15 has no MultiOptimizer")
    return keras.optimizers.MultiOptimizer(keras.optimizers.OptimizerMap(default, others))


class FixedSampler(samplers.Sampler):
    """A sampler that always returns the given `SampledValues`."""

    counts_are = "probabilities"  # All losses accept them.

    def __init__(self, sampled_values):
        super().__init__(num_sampled=int(sampled_values.sampled_candidates.shape[-1]), seed=1)
        self.sampled_values = sampled_values

    def sample(self, features, labels, layer):
        return self.sampled_values


class FixedSearch(samplers.HardNegativeSampler):
    """A sampler of given hard classes, whose tail is a `FixedSampler` of given values."""

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
    """Returns a `LargeOutput` with the given weights."""
    num_classes, dim = embeddings.shape
    head = layers.LargeOutput(num_classes, sampler=sampler, use_bias=bias is not None, **kwargs)
    head.build((None, dim))
    head.embeddings.assign(embeddings)
    if bias is not None:
        head.bias.assign(bias)
    return head


def pad(rows):
    """Converts lists of class ids to int64 `[B, L]`, padded with -1."""
    width = max(len(row) for row in rows)
    return np.array([[*row, *[-1] * (width - len(row))] for row in rows], np.int64)


def loss_and_gradients(loss, head, features, labels, **kwargs):
    """Returns the training loss and its dense gradients: features, embeddings and bias."""
    features = tf.convert_to_tensor(features)
    variables = [v for v in head.class_matrix.variables() if v is not None]
    with tf.GradientTape() as tape:
        tape.watch(features)
        value = loss(labels, head(features, training=True), **kwargs)
    gradients = tape.gradient(value, [features, *variables])
    return value.numpy(), [tf.convert_to_tensor(g).numpy() for g in gradients]


def public_classes(module, base):
    """Returns the names of the concrete subclasses of `base` that `module` exports."""
    return {
        name
        for name in module.__all__
        if inspect.isclass(member := getattr(module, name))
        if issubclass(member, base)
        and keras.saving.get_registered_name(member).startswith("tf_largeout>")
    }


def assert_resumed_equals_uninterrupted(make_model, fit_first, fit_rest, folder):
    """Checks that saving and loading after `fit_first` gives the same bits as a whole run.

    Args:
        make_model: Function that returns a new compiled model, always with the same weights.
        fit_first, fit_rest: Functions that train the given model.
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
    """Checks that serialisation and deserialisation change nothing."""
    config = keras.saving.serialize_keras_object(instance)
    clone = keras.saving.deserialize_keras_object(config)
    assert type(clone) is type(instance)
    assert clone.get_config() == instance.get_config()
    return clone
