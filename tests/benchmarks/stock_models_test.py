import numpy as np
import pytest
import tensorflow as tf

from benchmarks.methods import models

LABELS = np.array([[2, -1, -1], [0, 4, 1]])
PRESENT = LABELS >= 0
FLAT, ROW = LABELS[PRESENT], np.where(PRESENT)[0]


def test_accidental_hits_are_hidden():
    ids = np.array([4, 2, 3, 0])
    hidden = models.hide_accidental_hits(
        tf.zeros([2, 4]), tf.constant(ids), tf.constant(FLAT), tf.constant(ROW)
    )
    expected = (ids[None, :, None] == LABELS[:, None, :]).any(-1)
    np.testing.assert_array_equal(np.isneginf(hidden), expected)


def test_the_loss_spreads_the_target_over_all_labels():
    rng = np.random.default_rng(0)
    true, sampled = rng.standard_normal(len(FLAT)), rng.standard_normal([2, 5])
    sampled[1, 3] = -np.inf
    loss = models.all_positives_loss(tf.constant(true), tf.constant(ROW), tf.constant(sampled))
    rows = [
        np.log(np.exp(true[row == ROW]).sum() + np.exp(sampled[row]).sum())
        - true[row == ROW].mean()
        for row, ROW in ((0, ROW), (1, ROW))
    ]
    np.testing.assert_allclose(loss, np.mean(rows), rtol=1e-6)


@pytest.mark.slow
def test_one_label_is_drawn_uniformly_from_those_present():
    labels = tf.constant(LABELS)
    draws = np.stack([models.one_label_each(labels).numpy()[:, 0] for _ in range(300)])
    assert set(draws[:, 0]) == {2}
    counts = np.bincount(draws[:, 1], minlength=5)
    assert counts[[2, 3]].sum() == 0
    assert (np.abs(counts[[0, 1, 4]] - 100) < 5 * np.sqrt(300 * 2 / 9)).all()
