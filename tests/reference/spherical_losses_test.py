"""Both forms of each loss agree with each other and with their derivatives."""

import numpy as np

from tests.reference.factored_problem import (
    NUM_CLASSES,
    Problem,
    assert_equal,
    differences,
    each_loss,
)


def arguments(loss, batch, logits):
    """Returns the arguments of `loss.value` for given logits."""
    a = np.take_along_axis(logits, np.maximum(batch.ids, 0), 1)
    return (logits**2).sum(1), logits.sum(1), np.where(batch.ids >= 0, a, 0), batch.values


@each_loss
def test_both_forms_of_a_loss_agree(name):
    problem = Problem(name)
    batch = problem.labelled(20)
    logits = problem.dense.logits(batch.features)
    loss = problem.dense.loss
    expected = loss.of_logits(logits, batch.dense_targets(NUM_CLASSES))
    assert_equal(loss.value(*arguments(loss, batch, logits)), expected, 1e-12)
    assert np.ptp(expected[batch.weights > 0]) > 0.1


@each_loss
def test_derivatives_match_finite_differences(name):
    problem = Problem(name, num_classes=11)
    batch = problem.labelled(5)
    logits = problem.dense.logits(batch.features)
    loss, targets = problem.dense.loss, batch.dense_targets(11)
    q, s, a, t = arguments(loss, batch, logits)
    by_q, by_s, by_a = loss.slopes(q, s, a, t)
    assert_equal(by_q, differences(lambda q: loss.value(q, s, a, t), q), 1e-7)
    assert_equal(by_s, differences(lambda s: loss.value(q, s, a, t), s), 1e-7)
    assert_equal(by_a, differences(lambda a: loss.value(q, s, a, t), a), 1e-7)
    by_logits = differences(lambda o: loss.of_logits(o, targets), logits)
    assert_equal(loss.gradient(logits, targets), by_logits, 1e-7)


@each_loss
def test_scores_rank_classes_as_the_loss_does(name):
    problem = Problem(name, scale=2.0)
    logits = problem.dense.logits(problem.features(1))
    loss = problem.dense.loss
    each_class = np.eye(NUM_CLASSES)
    of_class = loss.of_logits(np.repeat(logits, NUM_CLASSES, 0), each_class)
    np.testing.assert_array_equal(np.argsort(loss.scores(logits)[0]), np.argsort(-of_class))
