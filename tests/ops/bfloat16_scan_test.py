"""Passes over all classes with bfloat16 products."""

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.class_problem import SHAPES, Problem
from tests.reference import class_scan as reference
from tf_largeout.ops import class_scan_ops


@pytest.fixture
def level(for_all_product_levels):
    return for_all_product_levels


def statistics_and_gradients(problem, weights, label_weights, **options):
    features = tf.constant(problem.features)
    variables = [v for v in problem.variables if v is not None]
    with tf.GradientTape() as tape:
        tape.watch([features, *variables])
        statistics = class_scan_ops.class_statistics(
            features, *problem.variables, problem.labels, **options
        )
        loss = tf.reduce_sum(weights * statistics[0])
        loss += tf.reduce_sum(label_weights * statistics[1])
    return statistics, tape.gradient(loss, [features, *variables])


def random_weights(problem):
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.1, 1, len(problem.features)).astype(np.float32)
    return weights, -rng.uniform(size=problem.labels.shape).astype(np.float32)


@pytest.mark.parametrize("shape", [*SHAPES, (600, 203, 16, 2), (70, 100, 300, 1)])
@pytest.mark.parametrize("bias", [False, True])
def test_results_equal_numpy_on_rounded_numbers(level, shape, bias):
    problem = Problem(*shape, bias=bias)
    weights, label_weights = random_weights(problem)
    run = tf.function(statistics_and_gradients) if shape[0] == 3 else statistics_and_gradients
    (log_partition, true_logits, _), found = run(
        problem, weights, label_weights, compute_dtype="bfloat16"
    )
    rounded = reference.bfloat16(problem.features), reference.bfloat16(problem.embeddings)
    logits = reference.logits(*rounded, problem.bias)
    np.testing.assert_allclose(
        log_partition, reference.log_partition(logits), rtol=1e-5, atol=1e-5
    )
    expected = reference.true_logits(logits, problem.labels)
    np.testing.assert_allclose(true_logits, expected, rtol=1e-4, atol=1e-4)
    expected = reference.bfloat16_gradient(
        problem.features,
        problem.embeddings,
        problem.bias,
        weights,
        problem.labels,
        label_weights,
    )
    # Near ties, float32 and float64 probabilities may round to different bfloat16 numbers.
    for got, want in zip(found, expected[: 2 + bias], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_gradient_equals_that_of_float32_up_to_rounding(level, shape):
    problem = Problem(*shape)
    problem.features *= 0.1  # logits change little: what is bounded is the rounding of products
    weights, label_weights = random_weights(problem)
    exact = statistics_and_gradients(problem, weights, label_weights)[1]
    found = statistics_and_gradients(problem, weights, label_weights, compute_dtype="bfloat16")[
        1
    ]
    logits_off = 2**-7 * np.abs(problem.features) @ np.abs(problem.embeddings).T
    p = np.abs(
        reference.gradient_of_logits(
            problem.features, problem.embeddings, problem.bias, weights, problem.labels,
            -label_weights,
        )
    )  # fmt: skip
    slack = p * (2**-7 + 2 * np.expm1(logits_off.max()))
    np.testing.assert_array_less(
        np.abs(found[0] - exact[0]), slack @ np.abs(problem.embeddings) + 1e-6
    )
    np.testing.assert_array_less(
        np.abs(found[1] - exact[1]), slack.T @ np.abs(problem.features) + 1e-6
    )


def test_ranks_equal_those_of_the_rounded_logits(level):
    problem = Problem(20, 300, 16, 9, ties=True)  # small integers, which are exact
    _, _, ranks = class_scan_ops.class_statistics(
        problem.features, *problem.handles, problem.labels, compute_dtype="bfloat16"
    )
    np.testing.assert_array_equal(ranks, reference.ranks(problem.logits, problem.labels))


def test_nan_of_one_example_changes_no_other_example(level):
    problem = Problem(9, 130, 40, 2)
    expected = statistics_and_gradients(
        problem, *random_weights(problem), compute_dtype="bfloat16"
    )[0][0].numpy()
    problem.features[4], problem.features[5, 3] = np.nan, np.inf
    problem.features[6] = -0.0
    (found, _, _), _ = statistics_and_gradients(
        problem, *random_weights(problem), compute_dtype="bfloat16"
    )
    assert np.isnan(found.numpy()[[4, 5]]).all()
    np.testing.assert_array_equal(
        found.numpy()[[0, 1, 2, 3, 7, 8]], expected[[0, 1, 2, 3, 7, 8]]
    )
    np.testing.assert_allclose(found[6], np.log(np.exp(problem.bias).sum()), rtol=1e-5)


def test_an_empty_batch_gives_gradients_of_zero():
    problem = Problem(0, 100, 5, 2)
    _, found = statistics_and_gradients(
        problem, *random_weights(problem), compute_dtype="bfloat16"
    )
    np.testing.assert_array_equal(found[1], np.zeros((100, 5)))
