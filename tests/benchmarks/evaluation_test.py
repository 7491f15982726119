import keras
import numpy as np
import pytest

import tf_largeout as tflo
from benchmarks.harness import tasks
from benchmarks.harness.evaluation import evaluate, rank_figures
from tests.reference.metrics import propensity_scored_precision_at_k


class Table(keras.Model):
    """Returns the rows of logits whose numbers are its input."""

    def __init__(self, logits):
        super().__init__()
        self.logits = keras.ops.convert_to_tensor(logits)

    def call(self, rows):
        return keras.ops.take(self.logits, rows[:, 0], axis=0)


LOGITS = np.random.default_rng(0).standard_normal([7, 11]).astype(np.float32)
LABELS = np.array([[1, -1], [3, 4], [0, -1], [10, 2], [5, -1], [6, 7], [8, -1]])
COUNTS = np.array([40, 25, 17, 9, 9, 5, 4, 2, 1, 0, 0])


def expected(k):
    best = np.argsort(-LOGITS, axis=1)[:, :k]
    hits = [np.isin(row, labels).sum() for row, labels in zip(best, LABELS, strict=True)]
    return 100 * np.mean(hits) / k


@pytest.mark.parametrize("batch_size", [3, 7, 100])
def test_figures_equal_those_from_sorted_logits(batch_size):
    figures = evaluate(Table(LOGITS), np.arange(7)[:, None], LABELS, batch_size=batch_size)
    partition = np.log(np.exp(LOGITS).sum(1))
    true = [LOGITS[i, row[row >= 0]].mean() for i, row in enumerate(LABELS)]
    assert figures["loss"] == pytest.approx(np.mean(partition - true), rel=1e-5)
    best = np.argsort(-LOGITS, axis=1)[:, :5]
    found = [np.isin(row, labels).any() for row, labels in zip(best, LABELS, strict=True)]
    assert figures["top5"] == pytest.approx(100 * np.mean(found))
    for k in (1, 3, 5):
        assert figures[f"p{k}"] == pytest.approx(expected(k))


def test_single_labels_need_no_second_axis():
    flat = evaluate(Table(LOGITS), np.arange(7)[:, None], LABELS[:, 0])
    assert flat == evaluate(Table(LOGITS), np.arange(7)[:, None], LABELS[:, :1])


@pytest.mark.parametrize("batch_size", [3, 100])
def test_propensity_scored_precision_equals_the_slow_reference(batch_size):
    rows = np.arange(7)[:, None]
    figures = evaluate(Table(LOGITS), rows, LABELS, COUNTS, 71, batch_size)
    for k in (1, 3, 5):
        slow = propensity_scored_precision_at_k(LOGITS, LABELS, k, COUNTS, 71, 0.55, 1.5)
        assert figures[f"psp{k}"] == pytest.approx(100 * slow)
    with_default = evaluate(Table(LOGITS), rows, LABELS, COUNTS)
    assert with_default["psp1"] == evaluate(Table(LOGITS), rows, LABELS, COUNTS, 112)["psp1"]
    assert with_default["psp1"] != figures["psp1"]


def test_without_counts_there_is_no_propensity_scored_precision():
    figures = evaluate(Table(LOGITS), np.arange(7)[:, None], LABELS)
    assert set(figures) == {"p1", "p3", "p5", "top5", "loss"}


@pytest.mark.slow
def test_figures_agree_with_the_metrics_of_the_package():
    task = tasks.synthetic(num_classes=60, examples=600, max_labels=3)("tiny", 32, 0, False)
    metric_class = tflo.metrics.PropensityScoredPrecisionAtK
    metrics = [metric_class(k, task.label_counts, task.num_examples) for k in (1, 3, 5)]
    output = tflo.layers.LargeOutput(60)
    model = task.model(16, output)
    loss = tflo.losses.SoftmaxLoss()
    model.compile("sgd", loss, metrics=[*metrics, tflo.metrics.PrecisionAtK(3)])
    model.fit(task.train, steps_per_epoch=5, verbose=0, shuffle=False)
    features, labels = task.test
    labels = np.sort(labels, axis=1)
    labels[:, 1:][labels[:, 1:] == labels[:, :-1]] = -1
    ours = model.evaluate(features, labels, verbose=0, return_dict=True)
    figures = evaluate(model, features, labels, task.label_counts, task.num_examples)
    for k in (1, 3, 5):
        assert figures[f"psp{k}"] == pytest.approx(100 * ours[f"psp_at_{k}"], rel=1e-5)
    assert figures["p3"] == pytest.approx(100 * ours["precision_at_3"], rel=1e-5)


def test_figures_of_found_classes_equal_those_of_the_logits():
    rows = np.arange(7)[:, None]
    figures = evaluate(Table(LOGITS), rows, LABELS, COUNTS, 71)
    best = np.argsort(-LOGITS, axis=1)[:, :5]
    found = rank_figures(best, LABELS, COUNTS, 71)
    assert {**found, "loss": figures["loss"]} == figures


def test_padding_never_counts_as_a_found_label():
    best = np.array([[1, -1, -1, -1, -1], [-1, -1, -1, -1, -1]])
    figures = rank_figures(best, LABELS[:2])
    assert figures == {"p1": 50.0, "p3": pytest.approx(100 / 6), "p5": 10.0, "top5": 50.0}
