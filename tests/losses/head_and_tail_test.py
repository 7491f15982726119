"""Sampled losses over hard classes of each example and a shared sample of the others."""

import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tests.losses import table
from tests.losses.table import BATCH, SEVERAL, N
from tests.reference import losses as reference
from tests.reference.finite_differences import finite_differences
from tf_largeout import losses, samplers

# The oracle of the calibration needs the number of classes, which heads have not in common.
WITHOUT = ["softmax", "calibrated negative sampling"]
EVERY_SAMPLED_LOSS = table.each_loss(without=WITHOUT)
ONE_OF_EACH_CLASS = table.each_loss(table.CLASSES, without=WITHOUT)
# Other tests check their gradients without a head; here, one loss per use of candidates.
SOME = table.each_loss(["sampled softmax", "nce", "importance, batch"], without=WITHOUT)


class Problem(table.Problem):
    """Heads of 0 to 5 distinct classes; some are labels, and some are also in the tail."""

    def __init__(self, labels=SEVERAL, seed=7):
        super().__init__(labels, seed=seed)
        rng = np.random.default_rng(8)
        self.own = np.stack([rng.choice(N, 5, replace=False) for _ in range(BATCH)])
        self.own[0, :2] = [3, self.sampled[4]]
        self.own[1, 3:] = -1
        self.own[2] = -1

    def head(self, **kwargs):
        tail = harness.sampled_values(self.sampled, self.true_count, self.sampled_count)
        sampler = harness.FixedSearch(self.own, tail)
        return harness.built_head(self.embeddings, self.bias, sampler, **kwargs)

    def oracle_on(self, oracle, features, embeddings, bias):
        counts = (self.true_count.astype("float64"), self.sampled_count.astype("float64"))
        return reference.with_head(
            oracle, features, embeddings, bias, self.labels, self.own, self.sampled, *counts
        )


@EVERY_SAMPLED_LOSS
@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(SEVERAL, id="several"),
        pytest.param(SEVERAL[:, :1], id="one", marks=pytest.mark.slow),
    ],
)
def test_equals_its_formula(case, labels):
    problem = Problem(labels)
    logits = problem.head()(problem.features, training=True)
    actual = case.loss(reduction=None)(problem.labels, logits)
    np.testing.assert_allclose(actual, problem.expected(case.oracle), rtol=1e-5, atol=1e-5)


@SOME
def test_gradient_equals_finite_differences_of_its_formula(case):
    problem = Problem()
    _, gradients = harness.loss_and_gradients(
        case.loss(reduction="sum"), problem.head(), problem.features, problem.labels
    )
    for actual, name in zip(gradients, ["features", "embeddings", "bias"], strict=True):
        expected = finite_differences(problem, name, case.oracle)
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@EVERY_SAMPLED_LOSS
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_low_precision_error_is_at_most_twice_the_naive_error(case, dtype):
    table.check_low_precision(case, dtype, Problem)


@ONE_OF_EACH_CLASS
def test_without_a_head_the_loss_equals_that_of_the_tail(case):
    problem = Problem()
    problem.own[:] = -1
    logits = problem.head()(problem.features, training=True)
    without = table.Problem().head()(problem.features, training=True)
    np.testing.assert_allclose(
        case.loss(reduction=None)(problem.labels, logits),
        case.loss(reduction=None)(problem.labels, without),
        rtol=1e-6,
    )


@ONE_OF_EACH_CLASS
def test_padding_among_candidates_has_no_gradient(case):
    problem = Problem(harness.pad([[3], [3], [5], [], [7], [12]]))
    problem.sampled[:] = 20
    problem.own[:] = -1
    problem.own[:, 2] = [30, 31, 30, 33, 20, 12]
    _, (_, embeddings, _) = harness.loss_and_gradients(
        case.loss(), problem.head(), problem.features, problem.labels
    )
    touched = np.flatnonzero(np.abs(embeddings).sum(axis=1))
    np.testing.assert_array_equal(touched, [3, 5, 7, 12, 20, 30, 31])


def hard_head(problem, num_hard, num_tail):
    """Returns a layer with the `num_hard` hardest classes and uniform draws."""
    sampler = samplers.TopKSampler(num_hard + num_tail, num_hard=num_hard, seed=5)
    return harness.built_head(problem.embeddings, problem.bias, sampler)


@pytest.mark.parametrize("correct_positive", [False, True])
def test_head_and_a_tail_of_all_classes_give_the_full_softmax(correct_positive):
    problem = Problem()
    loss = losses.SampledSoftmaxLoss(correct_positive=correct_positive, reduction="sum")
    head = hard_head(problem, num_hard=5, num_tail=N)
    sampled = harness.loss_and_gradients(loss, head, problem.features, problem.labels)
    full = harness.loss_and_gradients(
        losses.SoftmaxLoss(reduction="sum"), head, problem.features, problem.labels
    )
    for ours, theirs in zip([sampled[0], *sampled[1]], [full[0], *full[1]], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def partition_estimates(head, problem, steps):
    """Returns estimates of the sum of exp(o_c - o_y) over all classes, `[steps, B]`."""
    loss = losses.SampledSoftmaxLoss(reduction=None)

    @tf.function(autograph=False)
    def estimates():
        return tf.map_fn(
            lambda _: tf.exp(loss(problem.labels, head(problem.features, training=True))),
            tf.range(steps),
            fn_output_signature=tf.float32,
            parallel_iterations=1,
        )

    return estimates().numpy().astype("float64")


@pytest.mark.slow
def test_the_partition_estimate_is_unbiased_and_the_head_reduces_its_variance():
    problem = Problem(SEVERAL[:, :1])
    problem.labels = np.array([[3], [9], [0], [36], [7], [12]])
    exact = np.exp(
        reference.full_softmax(
            problem.features, problem.embeddings, problem.bias, problem.labels
        )
    )
    spreads = []
    for num_hard in (1, 4):
        estimates = partition_estimates(hard_head(problem, num_hard, 6), problem, 3000)
        sigma = estimates.std(axis=0) / np.sqrt(len(estimates))
        assert np.all(np.abs(estimates.mean(axis=0) - exact) < 5 * sigma)
        spreads.append(estimates.std(axis=0) / exact)
    assert np.all(spreads[1] < spreads[0])


def test_training_ranks_count_a_class_of_head_and_tail_once():
    problem = Problem()
    logits = problem.head()(problem.features, training=True)
    losses.SampledSoftmaxLoss()(problem.labels, logits)
    tag = logits._largeout_tag
    labels = tag.labels(problem.labels)
    step = tag.step(labels, labels.counted).step
    scores = problem.features @ problem.embeddings.T + problem.bias
    for row, ranks in enumerate(step.label_ranks().numpy()):
        positives = [y for y in problem.labels[row] if y >= 0]
        own = {c for c in problem.own[row] if c >= 0}
        drawn = [*own, *(c for c in problem.sampled if c not in own)]
        others = [*(c for c in drawn if c not in positives), *positives]
        for rank, label in zip(ranks, problem.labels[row], strict=True):
            if label >= 0:
                above = sum(scores[row, c] > scores[row, label] for c in others)
                assert rank == above
