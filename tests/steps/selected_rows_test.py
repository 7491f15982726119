"""Steps on padded sequences score only the positions with a label."""

import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import harness
from tf_largeout.steps.labels import SelectedRows

NUM_CLASSES, DIM = 11, 4
LABELS = np.array([[-1, 3, -1], [7, -1, -1], [-1, -1, -1]])


def _head(sampler):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(NUM_CLASSES, DIM)).astype("float32")
    return harness.built_head(rows, rng.normal(size=NUM_CLASSES).astype("float32"), sampler)


def _sizes_of_calls(monkeypatch, matrix, name):
    """Returns a list to which each call of a method adds its number of examples."""
    sizes, method = [], getattr(matrix, name)
    monkeypatch.setattr(
        matrix,
        name,
        lambda features, *args: sizes.append(len(features)) or method(features, *args),
    )
    return sizes


def _features():
    return np.random.default_rng(1).normal(size=(3, 3, DIM)).astype("float32")


@tf.function
def _taken_and_put_back(values, is_selected):
    rows = SelectedRows.where(is_selected)
    with tf.GradientTape() as tape:
        tape.watch(values)
        found = rows.put_back(3 * rows.take(values))
        total = tf.reduce_sum(found * values)
    return found, tape.gradient(total, values)


def test_rows_are_put_back_where_they_were_taken():
    values = np.arange(8.0, dtype="float32").reshape(4, 2)
    for is_selected in ([False, True, False, True], [False] * 4, [True] * 4):
        found, gradient = _taken_and_put_back(values, is_selected)
        kept = np.array(is_selected) if any(is_selected) else np.arange(4) == 0
        np.testing.assert_array_equal(found, 3 * values * kept[:, None])
        np.testing.assert_array_equal(gradient, 6 * values * kept[:, None])


@pytest.mark.parametrize(
    "sampler", [tflo.samplers.UniformSampler(5), tflo.samplers.TopKSampler(5)]
)
def test_only_positions_with_labels_are_scored(sampler, monkeypatch):
    head = _head(sampler)
    sizes = _sizes_of_calls(monkeypatch, head.class_matrix, "dots_and_rows")
    losses = tflo.losses.SampledSoftmaxLoss(reduction=None)(
        LABELS, head(_features(), training=True)
    )
    assert sizes == [2]
    np.testing.assert_array_equal(losses.numpy() > 0, LABELS >= 0)


@pytest.mark.slow
def test_evaluate_scores_only_positions_with_labels(monkeypatch):
    head = _head(None)
    sizes = _sizes_of_calls(monkeypatch, head.class_matrix, "statistics")
    logits = head(_features(), training=False)
    losses = tflo.losses.SoftmaxLoss(reduction=None)(LABELS, logits)
    metric = tflo.metrics.PrecisionAtK(1)
    metric.update_state(LABELS, logits)
    assert sizes == [2]
    dense = tf.nn.sparse_softmax_cross_entropy_with_logits(
        tf.maximum(LABELS, 0), head(_features())
    )
    np.testing.assert_allclose(losses, np.where(LABELS >= 0, dense, 0), rtol=1e-5)
    best = tf.argmax(head(_features()), axis=-1).numpy()
    np.testing.assert_allclose(metric.result(), np.mean((best == LABELS)[LABELS >= 0]))
