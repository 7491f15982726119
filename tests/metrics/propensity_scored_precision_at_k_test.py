"""The number of examples, and the counts in a saved model."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.metrics.table import COUNTS, METRICS, Problem, psp_reference


@pytest.mark.parametrize("number", ["99", 10.7, True, 0, -5, [99], 2**63])
def test_an_invalid_number_of_examples_raises_an_error(number):
    with pytest.raises(ValueError, match="`num_examples` must be .*Received: num_examples="):
        tflo.metrics.PropensityScoredPrecisionAtK(1, COUNTS, num_examples=number)


def test_without_a_number_of_examples_single_labels_are_assumed():
    problem = Problem(num_labels=1)
    ours = tflo.metrics.PropensityScoredPrecisionAtK(3, COUNTS)
    same = tflo.metrics.PropensityScoredPrecisionAtK(3, COUNTS, num_examples=COUNTS.sum())
    for metric in (ours, same):
        metric.update_state(problem.labels, problem.logits())
    assert float(ours.result()) == float(same.result()) > 0
    assert tflo.metrics.PropensityScoredPrecisionAtK.from_config(
        ours.get_config()
    ).get_config() == ours.get_config()  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True])
def test_without_a_number_of_examples_several_labels_raise_an_error(compiled):
    problem = Problem(num_labels=3)
    metric = tflo.metrics.PropensityScoredPrecisionAtK(3, COUNTS)

    def update(labels):
        metric.update_state(labels, problem.logits())

    update = tf.function(update) if compiled else update
    update(np.array([[5, 5, -1]] * 23))  # One label, given twice.
    with pytest.raises(tf.errors.InvalidArgumentError, match="Pass `num_examples`"):
        update(problem.labels)


@pytest.mark.slow
def test_a_saved_model_restores_all_metrics_and_their_counts(tmp_path):
    problem = Problem()
    model = keras.Sequential([keras.Input((8,)), problem.layer])
    metrics = [make() for make, _ in METRICS.values()]
    model.compile("sgd", loss=tflo.losses.SoftmaxLoss(), metrics=metrics)
    before = model.evaluate(problem.features, problem.labels, verbose=0, return_dict=True)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    after = loaded.evaluate(problem.features, problem.labels, verbose=0, return_dict=True)
    assert after == before
    logits, labels, _ = problem.flat()
    assert after["psp_at_3"] == pytest.approx(psp_reference(3)(logits, labels), rel=1e-5)
