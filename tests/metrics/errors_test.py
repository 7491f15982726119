"""Errors of wrong arguments of metrics."""

import pytest

import tf_largeout as tflo
from tests.metrics.table import COUNTS, NUM_CLASSES, Problem

AT_K = [
    (tflo.metrics.PrecisionAtK, (), True),
    (tflo.metrics.NDCG, (), False),
    (tflo.metrics.MacroRecallAtK, (NUM_CLASSES,), True),
    (tflo.metrics.CatalogCoverageAtK, (NUM_CLASSES,), True),
    (tflo.metrics.AveragePopularityAtK, (COUNTS,), True),
]


@pytest.mark.parametrize("cls, others, needs_k", AT_K)
@pytest.mark.parametrize("k", [0, -1, 1.5, True, "many", None])
def test_a_wrong_k_raises_an_error(k, cls, others, needs_k):
    if k is None and not needs_k:
        assert cls(k, *others).name == "ndcg"
        return
    with pytest.raises(ValueError, match="`k` must be a positive integer"):
        cls(k, *others)


@pytest.mark.parametrize("cls, others, _", AT_K)
def test_a_k_above_the_number_of_classes_is_refused(cls, others, _):
    problem = Problem()
    with pytest.raises(ValueError, match=f"k=42 best classes.*only {NUM_CLASSES}.*smaller"):
        cls(NUM_CLASSES + 1, *others).update_state(problem.labels, problem.logits())
    cls(NUM_CLASSES, *others).update_state(problem.labels, problem.logits())


@pytest.mark.parametrize(
    "counts,message",
    [
        ([[1, 2]], "one per class"),
        ([1, -2, 9], "not negative"),
        ([1, 1], "at least 3"),
        ([1, 0.5, 9], "whole numbers.*Received 0.5"),
    ],
)
def test_wrong_counts_raise_an_error(counts, message):
    with pytest.raises(ValueError, match=message):
        tflo.metrics.PropensityScoredPrecisionAtK(1, counts)


@pytest.mark.parametrize("constants", [{"a": -1}, {"b": 0}, {"b": -1}, {"a": "x"}])
def test_invalid_propensity_constants_raise_an_error(constants):
    with pytest.raises(ValueError, match="`[ab]` must be a number"):
        tflo.metrics.PropensityScoredPrecisionAtK(1, [5, 5, 5], **constants)


@pytest.mark.parametrize(
    "metric, message",
    [
        (tflo.metrics.PropensityScoredPrecisionAtK(1, [5, 5, 5]), "41 classes.*3 counts"),
        (tflo.metrics.AveragePopularityAtK(1, [5, 5, 5]), "41 classes.*3 counts"),
        (tflo.metrics.MacroRecallAtK(1, 3), "layer.*, 41. Received: num_classes=3"),
        (tflo.metrics.CatalogCoverageAtK(1, 3), "layer.*, 41. Received: num_classes=3"),
    ],
)
def test_another_number_of_classes_raises_an_error(metric, message):
    problem = Problem()
    with pytest.raises(ValueError, match=message):
        metric.update_state(problem.labels, problem.logits())
