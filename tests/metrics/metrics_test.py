import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import harness
from tests.metrics.table import METRICS, NUM_CLASSES, Problem
from tests.reference import metrics as reference


def test_every_public_metric_is_in_the_table():
    assert {name.split("-")[0] for name in METRICS} == {
        name for name in tflo.metrics.__all__ if inspect.isclass(getattr(tflo.metrics, name))
    }


def test_the_value_equals_numpy(member):
    metric, oracle = member
    problem = Problem()
    metric.update_state(problem.labels, problem.logits())
    logits, labels, _ = problem.flat()
    np.testing.assert_allclose(metric.result(), oracle(logits, labels), rtol=1e-5)
    assert oracle(logits, labels) > 0


def test_sample_weights_apply_to_examples(member):
    metric, oracle = member
    problem = Problem(shape=(5, 4))
    metric.update_state(problem.labels, problem.logits(), problem.weights)
    np.testing.assert_allclose(metric.result(), oracle(*problem.flat()), rtol=1e-5)


def test_weights_of_a_sequence_apply_to_all_positions(member):
    metric, oracle = member
    problem = Problem(shape=(5, 4))
    problem.weights[:] = problem.weights[:, :1]
    metric.update_state(problem.labels, problem.logits(), problem.weights[:, 0])
    np.testing.assert_allclose(metric.result(), oracle(*problem.flat()), rtol=1e-5)


def test_weights_of_the_labels_raise_an_error(member):
    metric, _ = member
    problem = Problem()
    with pytest.raises(ValueError, match="`sample_weight` must have.*Received: shape"):
        metric.update_state(problem.labels, problem.logits(), np.ones(problem.labels.shape))


def test_two_batches_equal_one(member):
    metric, oracle = member
    problem = Problem()
    logits, labels, _ = problem.flat()
    for rows in (slice(0, 10), slice(10, 23)):
        part = problem.layer(tf.constant(problem.features[rows]))
        metric.update_state(problem.labels[rows], part)
    np.testing.assert_allclose(metric.result(), oracle(logits, labels), rtol=1e-5)
    metric.reset_state()
    metric.update_state(problem.labels, problem.logits())
    np.testing.assert_allclose(metric.result(), oracle(logits, labels), rtol=1e-5)


def test_a_batch_without_any_label_adds_nothing(member):
    metric, oracle = member
    problem = Problem()
    metric.update_state(problem.labels, problem.logits())
    metric.update_state(problem.labels[:, :0], problem.logits())
    logits, labels, _ = problem.flat()
    np.testing.assert_allclose(metric.result(), oracle(logits, labels), rtol=1e-5)


def test_a_config_makes_the_same_metric(member):
    metric, _ = member
    problem = Problem()
    config = keras.saving.serialize_keras_object(metric)
    copy = keras.saving.deserialize_keras_object(config)
    for each in (metric, copy):
        each.update_state(problem.labels, problem.logits())
    assert copy.name == metric.name
    assert float(copy.result()) == float(metric.result())


def test_evaluate_gives_exact_values_for_all_metrics():
    problem = Problem()
    model = keras.Sequential([keras.Input((8,)), problem.layer])
    metrics = [make() for make, _ in METRICS.values()]
    model.compile(loss=tflo.losses.SampledSoftmaxLoss(), weighted_metrics=metrics)
    found = model.evaluate(
        problem.features,
        problem.labels,
        sample_weight=problem.weights,
        batch_size=9,
        verbose=0,
        return_dict=True,
    )
    for metric, (_, oracle) in zip(metrics, METRICS.values(), strict=True):
        np.testing.assert_allclose(found[metric.name], oracle(*problem.flat()), rtol=1e-5)


@pytest.mark.parametrize("absolute", [False, True])
def test_a_training_step_ranks_labels_among_the_candidates(absolute):
    problem = Problem()
    logits, labels, _ = problem.flat()
    logits = np.abs(logits) if absolute else logits
    ones = np.ones(4)
    values = harness.sampled_values([3, 4, 5, 3], np.ones(labels.shape), ones)
    problem.layer.sampler = harness.FixedSampler(values)
    lazy_logits = problem.logits(training=True)
    tflo.losses.SampledSoftmaxLoss()(problem.labels, lazy_logits)
    metric = tflo.metrics.PrecisionAtK(1, absolute=absolute)
    metric.update_state(problem.labels, lazy_logits)
    seen = [sorted({3, 4, 5, *(label for label in row if label >= 0)}) for row in labels]
    hits = [
        seen[b][int(np.argmax(logits[b, seen[b]]))] in row
        for b, row in enumerate(labels)
        if (row >= 0).any()
    ]
    np.testing.assert_allclose(metric.result(), np.mean(hits), rtol=1e-6)


def test_a_metric_with_other_labels_than_the_loss_raises_an_error():
    problem = Problem()
    values = harness.sampled_values([3, 4], np.ones((len(problem.flat()[1]), 1)), np.ones(2))
    problem.layer.sampler = harness.FixedSampler(values)
    logits = problem.logits(training=True)
    tflo.losses.SampledSoftmaxLoss()(problem.labels, logits)
    metric = tflo.metrics.PrecisionAtK(1)
    metric.update_state(problem.labels.copy(), logits)
    assert np.isfinite(metric.result())
    with pytest.raises(tf.errors.InvalidArgumentError, match="different labels"):
        metric.update_state(problem.labels[..., ::-1], logits)


def test_a_training_step_without_candidates_leaves_the_state(member):
    metric, _ = member
    problem = Problem()
    metric.update_state(problem.labels, problem.logits(training=True))
    assert all(not np.any(variable) for variable in metric.variables)


def test_training_with_the_exact_loss_gives_exact_metrics():
    problem = Problem()
    expected = reference.perplexity(*problem.flat()[:2])
    model = keras.Sequential([keras.Input((8,)), problem.layer])
    metric = tflo.metrics.Perplexity()
    model.compile("sgd", loss=tflo.losses.SoftmaxLoss(), metrics=[metric])
    history = model.fit(problem.features, problem.labels, batch_size=23, verbose=0).history
    np.testing.assert_allclose(history["perplexity"][0], expected, rtol=1e-5)


def test_recalls_of_classes_are_those_since_the_reset():
    problem = Problem()
    metric = tflo.metrics.MacroRecallAtK(5, NUM_CLASSES)
    metric.update_state(problem.labels, problem.logits(), problem.weights)
    expected = reference.class_recalls(*problem.flat()[:2], 5, problem.weights)
    np.testing.assert_allclose(metric.class_recalls(), expected, rtol=1e-6)
    assert np.isnan(expected).any() and (expected > 0).any()
    metric.reset_state()
    assert np.isnan(metric.class_recalls()).all()


@pytest.mark.slow
def test_replicas_add_up_to_the_value_of_one():
    problem = Problem()
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        metrics = [make() for make, _ in METRICS.values()]
        model = keras.Sequential([keras.Input((8,)), tflo.layers.LargeOutput(NUM_CLASSES)])
        model.compile(loss=tflo.losses.SoftmaxLoss(), weighted_metrics=metrics)
    model.layers[-1].set_weights([one.numpy() for one in problem.layer.weights])
    columns = (problem.features, problem.labels, problem.weights)
    data = tf.data.Dataset.from_tensor_slices(columns).batch(8)
    found = model.evaluate(data, verbose=0, return_dict=True)
    for metric, (_, oracle) in zip(metrics, METRICS.values(), strict=True):
        np.testing.assert_allclose(found[metric.name], oracle(*problem.flat()), rtol=1e-5)


def test_counts_above_float32_precision_are_exact():
    metric = tflo.metrics.PrecisionAtK(1)
    metric.denominator.assign(2.0**25)
    metric.numerator.assign(2.0**25)
    problem = Problem(num_labels=1)
    metric.update_state(problem.labels, problem.logits())
    added = np.sum(problem.labels >= 0)
    assert float(metric.denominator) == 2.0**25 + added


def test_other_predictions_raise_an_error(member):
    with pytest.raises(ValueError, match="direct output of a `LargeOutput`"):
        member[0].update_state([1, 2], tf.zeros([2, NUM_CLASSES]))
