import numpy as np
import pytest
import tensorflow as tf

from tests.ops.class_problem import SHAPES, Problem
from tests.reference import class_scan as reference
from tf_largeout.ops import class_scan_ops


@pytest.fixture
def simd_level(for_all_simd_levels):
    return for_all_simd_levels


def gradients(problem, weights, label_weights):
    features = tf.constant(problem.features)
    variables = [v for v in problem.variables if v is not None]
    with tf.GradientTape() as tape:
        tape.watch([features, *variables])
        log_partition, true_logits, _ = class_scan_ops.class_statistics(
            features, *problem.handles, problem.labels
        )
        loss = tf.reduce_sum(weights * log_partition)
        loss += tf.reduce_sum(label_weights * true_logits)
    return tape.gradient(loss, [features, *variables])


def random_weights(problem, seed=1):
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.1, 1, len(problem.features)).astype(np.float32)
    return weights, rng.normal(size=problem.labels.shape).astype(np.float32)


@pytest.mark.parametrize("shape", [*SHAPES, (600, 203, 16, 2)])
@pytest.mark.parametrize("bias", [False, True])
def test_gradients_equal_numpy(simd_level, shape, bias):
    problem = Problem(*shape, bias=bias)
    weights, label_weights = random_weights(problem)
    run = tf.function(gradients) if shape[0] == 3 else gradients
    found = run(problem, weights, label_weights)
    expected = reference.gradient(
        problem.features,
        problem.embeddings,
        problem.bias,
        weights,
        problem.labels,
        label_weights,
    )
    for got, want in zip(found, expected[: 2 + bias], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


def test_gradients_agree_with_finite_differences(simd_level):
    problem = Problem(5, 11, 3, 2)
    weights, label_weights = random_weights(problem)
    d_features = gradients(problem, weights, label_weights)[0].numpy()

    def loss(features):
        logits = reference.logits(features, problem.embeddings, problem.bias)
        picked = reference.true_logits(logits, problem.labels)
        return weights @ reference.log_partition(logits) + (label_weights * picked).sum()

    for index in np.ndindex(d_features.shape):
        step = np.zeros(d_features.shape)
        step[index] = 1e-5
        slope = loss(problem.features + step) - loss(problem.features - step)
        np.testing.assert_allclose(d_features[index], slope / 2e-5, rtol=1e-3, atol=1e-4)


def test_examples_of_weight_zero_have_no_gradient(simd_level):
    problem = Problem(9, 130, 7, 2)
    weights, label_weights = random_weights(problem)
    problem.features[4] = np.nan
    problem.labels[4] = -1
    weights[4] = 0
    kept = [b for b in range(9) if b != 4]
    found = gradients(problem, weights, label_weights)
    np.testing.assert_array_equal(found[0][4], np.zeros(7))
    problem.features, problem.labels = problem.features[kept], problem.labels[kept]
    expected = gradients(problem, weights[kept], label_weights[kept])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-5, atol=1e-5)


def test_an_empty_batch_gives_gradients_of_zero():
    problem = Problem(0, 100, 5, 2)
    d_features, d_embeddings, d_bias = gradients(problem, *random_weights(problem))
    assert d_features.shape == (0, 5)
    np.testing.assert_array_equal(d_embeddings, np.zeros((100, 5)))
    np.testing.assert_array_equal(d_bias, np.zeros(100))
