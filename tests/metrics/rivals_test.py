"""Our metrics against keras-rs and scikit-learn, on dense logits."""

import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.metrics.table import NUM_CLASSES, Problem


def labelled(num_labels=4):
    """Returns a problem whose examples all have a label, and the labels as 0 and 1."""
    problem = Problem(num_labels=num_labels)
    problem.labels[:, 0] = np.abs(problem.labels[:, 0])
    relevance = np.zeros((len(problem.labels), NUM_CLASSES), "float32")
    for row, labels in zip(relevance, problem.labels, strict=True):
        row[labels[labels >= 0]] = 1
    return problem, relevance


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [None, 1, 5])
@pytest.mark.parametrize("name", ["NDCG", "MeanReciprocalRank", "MeanAveragePrecision"])
def test_values_are_those_of_keras_rs(name, k, weighted):
    keras_rs = pytest.importorskip("keras_rs")
    problem, relevance = labelled()
    weights = problem.weights if weighted else None
    ours = getattr(tflo.metrics, name)(k)
    ours.update_state(problem.labels, problem.logits(), weights)
    theirs = getattr(keras_rs.metrics, name)(k=k, shuffle_ties=False)
    theirs.update_state(relevance, tf.constant(problem.logits().numpy()), weights)
    np.testing.assert_allclose(ours.result(), theirs.result(), rtol=1e-5)


def test_values_are_those_of_scikit_learn():
    sklearn = pytest.importorskip("sklearn.metrics")
    problem, relevance = labelled()
    logits = problem.logits()
    for metric, expected in (
        (tflo.metrics.NDCG(), sklearn.ndcg_score(relevance, logits)),
        (tflo.metrics.NDCG(5), sklearn.ndcg_score(relevance, logits, k=5)),
        (
            tflo.metrics.MeanAveragePrecision(),
            sklearn.average_precision_score(relevance, logits, average="samples"),
        ),
    ):
        metric.update_state(problem.labels, logits)
        np.testing.assert_allclose(metric.result(), expected, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
def test_macro_recall_is_the_balanced_accuracy_of_scikit_learn():
    sklearn = pytest.importorskip("sklearn.metrics")
    problem, _ = labelled(num_labels=1)
    best = np.argmax(problem.logits(), axis=1)
    problem.labels[::2, 0] = best[::2]
    metric = tflo.metrics.MacroRecallAtK(1, NUM_CLASSES)
    metric.update_state(problem.labels, problem.logits(), problem.weights)
    expected = sklearn.balanced_accuracy_score(
        problem.labels[:, 0], best, sample_weight=problem.weights
    )
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-5)
