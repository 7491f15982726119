"""Counts of a shared pool of `LSHSampler` for extreme angles and outdated tables."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tests.slow import slow_but
from tf_largeout import layers, losses, optimizers, samplers

EVERY_LOSS = pytest.mark.parametrize(
    "loss",
    [
        losses.SampledSoftmaxLoss(correct_positive=True),
        *(
            pytest.param(loss, marks=pytest.mark.slow)
            for loss in [
                losses.SampledSoftmaxLoss(),
                losses.NCELoss(),
                losses.NegativeSamplingLoss(),
            ]
        ),
    ],
    ids=["softmax of corrected labels", "softmax", "nce", "negative sampling"],
)


@pytest.mark.parametrize("num_sampled, num_uniform", [(1, 1), (2, 1), (8, 1), (40, 5), (50, 7)])
def test_a_class_far_from_all_examples_has_the_count_of_uniform_draws(num_sampled, num_uniform):
    ones, labels = np.ones([50, 3], "float32"), np.array([[7], [-1]])
    head = harness.built_head(ones, sampler=samplers.LSHSampler(num_sampled, seed=1))
    head.sampler.sample(tf.constant(ones[:2]), labels, head)  # builds the tables
    head.embeddings.assign(-ones)
    for _ in range(5):
        values = head.sampler.sample(tf.constant(ones[:2]), labels, head)
        np.testing.assert_allclose(values.sampled_expected_count, num_uniform / 50, rtol=1e-6)
        expected = [[num_uniform / 50], [1]]
        np.testing.assert_allclose(values.true_expected_count, expected, rtol=1e-6)


@EVERY_LOSS
@pytest.mark.parametrize(
    "num_classes, dim, batch_size",
    slow_but([], [(50, 1, 1), (50, 2, 1), (500, 3, 4)]),
)
def test_narrow_heads_train_to_finite_weights(loss, num_classes, dim, batch_size):
    head = layers.LargeOutput(num_classes, samplers.LSHSampler(20, seed=1))
    model = keras.Sequential([keras.Input([dim]), head])
    model.compile(optimizers.LazySGD(0.5), loss)
    features = np.random.default_rng(0).normal(size=[60, dim])
    history = model.fit(
        features, np.arange(60) % num_classes, batch_size=batch_size, verbose=0
    ).history
    assert np.isfinite(history["loss"]).all()
    assert np.isfinite(head.embeddings.numpy()).all()


@pytest.mark.slow  # long training
@EVERY_LOSS
def test_one_repeated_example_is_learned_from_zero_weights(loss):
    sampler = samplers.LSHSampler(64, seed=1)
    head = layers.LargeOutput(1000, sampler, embeddings_initializer="zeros")
    model = keras.Sequential([keras.Input([16]), head])
    model.compile(optimizers.LazySGD(0.5), loss)
    features, labels = np.ones([40, 16], "float32"), np.full(40, 7)
    history = model.fit(features, labels, batch_size=1, verbose=0).history["loss"]
    assert np.isfinite(history).all()
    assert model.predict(features[:1], verbose=0).argmax() == 7
