import keras
import numpy as np
import pytest

from tf_largeout.benchmarks.evaluation import evaluate


class Table(keras.Model):
    """Gives the row of logits that its input names."""

    def __init__(self, logits):
        super().__init__()
        self.logits = keras.ops.convert_to_tensor(logits)

    def call(self, rows):
        return keras.ops.take(self.logits, rows[:, 0], axis=0)


LOGITS = np.random.default_rng(0).standard_normal([7, 11]).astype(np.float32)
LABELS = np.array([[1, -1], [3, 4], [0, -1], [10, 2], [5, -1], [6, 7], [8, -1]])


def expected(k):
    best = np.argsort(-LOGITS, axis=1)[:, :k]
    hits = [np.isin(row, labels).sum() for row, labels in zip(best, LABELS, strict=True)]
    return 100 * np.mean(hits) / k


@pytest.mark.parametrize("batch_size", [3, 7, 100])
def test_figures_equal_those_from_sorted_logits(batch_size):
    figures = evaluate(Table(LOGITS), np.arange(7)[:, None], LABELS, batch_size)
    partition = np.log(np.exp(LOGITS).sum(1))
    true = [LOGITS[i, row[row >= 0]].mean() for i, row in enumerate(LABELS)]
    assert figures["loss"] == pytest.approx(np.mean(partition - true), rel=1e-5)
    best = np.argsort(-LOGITS, axis=1)[:, :5]
    found = [np.isin(row, labels).any() for row, labels in zip(best, LABELS, strict=True)]
    assert figures["top5"] == pytest.approx(100 * np.mean(found))
    for k in (1, 3, 5):
        assert figures[f"p{k}"] == pytest.approx(expected(k))


def test_labels_of_one_class_need_no_second_axis():
    flat = evaluate(Table(LOGITS), np.arange(7)[:, None], LABELS[:, 0])
    assert flat == evaluate(Table(LOGITS), np.arange(7)[:, None], LABELS[:, :1])
