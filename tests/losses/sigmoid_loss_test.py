"""`SigmoidLoss` against the sum of the binary cross entropies of all classes."""

import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import harness
from tests.losses.table import N, Problem
from tests.reference import losses as reference
from tf_largeout import losses, samplers


@pytest.mark.parametrize("sampler", [None, "all"], ids=["without a sampler", "all classes"])
@pytest.mark.parametrize("shards", [1, 3])
def test_the_sigmoid_loss_and_its_gradients_are_exact(sampler, shards):
    problem = Problem()
    sampler = sampler and samplers.UniformSampler(N)
    head = tflo.layers.LargeOutput(N, sampler=sampler, num_shards=shards)
    features = tf.Variable(problem.features)
    head.build(features.shape)
    rows, bias = head.class_embeddings().numpy(), np.zeros(N)
    labels = tf.constant(problem.labels)
    with tf.GradientTape() as tape:
        found = losses.SigmoidLoss(reduction="sum")(labels, head(features, training=True))
    expected = reference.full_sigmoid(problem.features, rows, bias, problem.labels)
    np.testing.assert_allclose(found, expected.sum(), rtol=1e-5)
    targets = reference.dense_targets(problem.labels, N) > 0
    errors = 1 / (1 + np.exp(-problem.features @ rows.T)) - targets
    errors *= targets.any(axis=1, keepdims=True)
    np.testing.assert_allclose(
        tape.gradient(found, features), errors @ rows, rtol=1e-4, atol=1e-5
    )


@pytest.mark.slow  # many draws of a loss with the formula of losses_test.py
def test_the_sampled_sigmoid_loss_is_unbiased():
    problem = Problem()
    head = harness.built_head(problem.embeddings, problem.bias, samplers.UniformSampler(N // 2))
    loss = losses.SigmoidLoss(reduction=None)
    step = tf.function(lambda: loss(problem.labels, head(problem.features, training=True)))
    values = np.array([step().numpy() for _ in range(400)])
    expected = reference.full_sigmoid(
        problem.features, problem.embeddings, problem.bias, problem.labels
    )
    errors = values.std(axis=0) / np.sqrt(len(values))
    assert np.all(np.abs(values.mean(axis=0) - expected) <= 5 * errors + 1e-4)
