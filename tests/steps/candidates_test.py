"""Logits of labels and sampled classes, compared with a loop over examples and classes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tf_largeout.classes.class_scorer import ClassMatrix
from tf_largeout.sampled_values import HeadAndTail
from tf_largeout.steps.step import score_candidates

N, DIM, LOWEST = 30, 4, np.finfo(np.float32).min
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(N, DIM)).astype("float32")
BIAS = RNG.normal(size=N).astype("float32")
FEATURES = RNG.normal(size=(3, DIM)).astype("float32")
LOGITS = FEATURES @ ROWS.T + BIAS
LABELS = np.array([[4, 7], [9, -1], [-1, -1]])
HEAD = np.array([[7, 2, 3], [5, -1, -1], [1, 9, 6]])
TAIL = np.array([2, 9, 4, 20, 20])
TAIL_COUNTS = np.array([0.5, 0.1, 2.0, 0.3, 0.3])
TRUE_COUNTS = RNG.uniform(0.1, 1, LABELS.shape)

with_and_without_hits = pytest.mark.parametrize("removes", [True, False])


def _candidates(removes, with_head=True):
    tail = harness.sampled_values(TAIL, TRUE_COUNTS, TAIL_COUNTS)
    in_head = [
        [y >= 0 and y in row for y in labels] for labels, row in zip(LABELS, HEAD, strict=True)
    ]
    head = harness.sampled_values(HEAD, np.float32(in_head), np.ones(HEAD.shape))
    classes = ClassMatrix(keras.Variable(ROWS), keras.Variable(BIAS), "test")
    sample = HeadAndTail(head, tail) if with_head else tail
    return score_candidates(classes, FEATURES, tf.constant(LABELS), sample, removes)


def _expected(removes, with_head):
    """Returns logits (the lowest float for classes without effect) and log counts."""
    logits, log_counts = [], []
    for row, labels in enumerate(LABELS):
        own = list(HEAD[row]) if with_head else []
        no_effect = set(labels) if removes else set()
        values = [LOGITS[row, c] if c >= 0 and c not in no_effect else LOWEST for c in own] + [
            LOGITS[row, c] if c not in no_effect | set(own) else LOWEST for c in TAIL
        ]
        logits.append(values)
        log_counts.append([0.0] * len(own) + list(np.log(TAIL_COUNTS)))
    return np.array(logits), np.array(log_counts)


@with_and_without_hits
@pytest.mark.parametrize("with_head", [True, False], ids=["head and tail", "tail"])
def test_raw_logits_and_log_counts_are_separate(removes, with_head):
    made = _candidates(removes, with_head)
    logits, log_counts = _expected(removes, with_head)
    has_effect = logits > LOWEST
    np.testing.assert_allclose(made.logits(), logits, rtol=1e-5)
    np.testing.assert_allclose(made.log_counts(), log_counts, rtol=1e-5, atol=1e-6)
    corrected = np.where(has_effect, logits - log_counts, LOWEST)
    np.testing.assert_allclose(made.corrected_logits(), corrected, rtol=1e-5)
    partition = [np.logaddexp.reduce(c[e]) for c, e in zip(corrected, has_effect, strict=True)]
    np.testing.assert_allclose(made.log_partition(), partition, rtol=1e-5)


def test_labels_have_logits_and_counts_of_head_or_tail():
    made = _candidates(removes=True)
    has_label = LABELS >= 0
    np.testing.assert_array_equal(made.has_label, has_label)
    picked = np.take_along_axis(LOGITS, np.maximum(LABELS, 0), axis=1)
    np.testing.assert_allclose(made.true_logits, np.where(has_label, picked, 0), rtol=1e-5)
    expected = TRUE_COUNTS.copy()
    expected[0, 1] = 1.0  # Class 7 is in the head of its example.
    np.testing.assert_allclose(made.true_log_counts(), np.log(expected), rtol=1e-5)


@with_and_without_hits
@pytest.mark.parametrize("absolute", [False, True])
def test_ranks_count_each_other_candidate_and_no_accidental_hits(removes, absolute):
    ranks = _candidates(removes).ranks(absolute).numpy()
    scores = np.abs(LOGITS) if absolute else LOGITS
    for row, labels in enumerate(LABELS):
        own = [c for c in HEAD[row] if c >= 0]
        drawn = own + [c for c in TAIL if c not in own]
        positives = [y for y in labels if y >= 0]
        others = [c for c in drawn if c not in positives] + positives
        for rank, label in zip(ranks[row], labels, strict=True):
            if label >= 0:
                assert rank == sum(scores[row, c] > scores[row, label] for c in others)
            else:
                assert rank >= len(drawn)
