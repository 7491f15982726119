"""Sample weights of all kinds, and metrics without examples."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.metrics.table import METRICS, NUM_CLASSES, Problem


def test_negative_weights_count_as_in_keras():
    problem = Problem(num_labels=1)
    problem.labels = np.maximum(problem.labels, 0)
    weights = np.random.default_rng(1).normal(size=len(problem.labels)) + 0.3
    ours, kerass = tflo.metrics.RecallAtK(5), keras.metrics.SparseTopKCategoricalAccuracy(5)
    for metric in (ours, kerass):
        metric.update_state(problem.labels, problem.logits(), sample_weight=weights)
    assert (weights < 0).any()
    np.testing.assert_allclose(ours.result(), kerass.result(), rtol=1e-5)


def test_negative_weights_of_examples_equal_the_formula(member):
    metric, oracle = member
    problem = Problem()
    problem.weights[3:6] *= -0.2
    metric.update_state(problem.labels, problem.logits(), problem.weights)
    np.testing.assert_allclose(metric.result(), oracle(*problem.flat()), rtol=1e-5)


@pytest.mark.parametrize("weight", [np.nan, np.inf])
def test_nan_weights_give_nan_as_in_keras(member, weight):
    metric, _ = member
    problem = Problem()
    problem.weights[5] = weight
    metric.update_state(problem.labels, problem.logits(), problem.weights)
    only_whether_0 = isinstance(metric, tflo.metrics.CatalogCoverageAtK)
    assert np.isnan(metric.result()) != only_whether_0


def test_an_example_without_labels_adds_nothing(member):
    metric, oracle = member
    problem = Problem()
    expected = oracle(*problem.flat())
    problem.weights[0] = np.nan  # All labels are -1.
    metric.update_state(problem.labels, problem.logits(), problem.weights)
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-5)


def test_an_example_of_weight_0_adds_nothing_even_if_its_terms_are_nan():
    problem = Problem(num_labels=1)
    problem.weights[7] = 0
    lazy_logits = problem.logits()
    metric = tflo.metrics.Perplexity()
    tag = lazy_logits._largeout_tag
    labels = tag.labels(problem.labels)
    known = tag.step(labels, labels.counted).step.statistics()
    known.log_partition = tf.tensor_scatter_nd_update(known.log_partition, [[7]], [np.nan])
    metric.update_state(problem.labels, lazy_logits, problem.weights)
    assert np.isfinite(metric.result())


def test_a_metric_without_examples_is_nan(member):
    metric, oracle = member
    problem = Problem()
    assert np.isnan(metric.result())
    metric.update_state(
        problem.labels, problem.logits(training=True)
    )  # No loss has drawn classes.
    assert np.isnan(metric.result())
    metric.update_state(problem.labels, problem.logits(), np.zeros(len(problem.labels)))
    assert np.isnan(metric.result())
    metric.update_state(problem.labels, problem.logits())
    np.testing.assert_allclose(metric.result(), oracle(*problem.flat()[:2]), rtol=1e-5)
    metric.reset_state()
    assert np.isnan(metric.result())


def compiled(metrics, loss="sampled_softmax_loss", **options):
    sampler = tflo.samplers.UniformSampler(20, seed=1)
    output = tflo.layers.LargeOutput(NUM_CLASSES, sampler=sampler)
    model = keras.Sequential([keras.Input((8,)), output])
    model.compile("lazy_adam", loss, metrics=metrics, **options)
    return model


def test_perplexity_is_nan_in_sampled_training_and_exact_in_validation(tmp_path):
    problem = Problem(num_labels=1)
    metrics = [tflo.metrics.Perplexity(), tflo.metrics.PrecisionAtK(1)]
    model = compiled(metrics, run_eagerly=True)  # Tracing takes most of the time.
    log = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    stop = keras.callbacks.EarlyStopping("val_perplexity", patience=9)
    history = model.fit(
        problem.features,
        problem.labels,
        validation_data=(problem.features, problem.labels),
        callbacks=[log, stop],
        epochs=2,
        verbose=0,
    ).history
    assert np.isnan(history["perplexity"]).all()
    assert np.isfinite(history["precision_at_1"]).all()
    np.testing.assert_allclose(history["val_perplexity"], np.exp(history["val_loss"]), rtol=0.3)


def test_callbacks_know_whether_a_higher_value_is_better():
    metrics = [tflo.metrics.Perplexity(), tflo.metrics.RecallAtK(3)]
    model = compiled(metrics)
    problem = Problem(num_labels=1)
    model.evaluate(problem.features, problem.labels, verbose=0)
    for monitor, better in (("val_perplexity", keras.ops.less), ("recall_at_3", None)):
        callback = keras.callbacks.EarlyStopping(monitor)
        callback.set_model(model)
        callback._set_monitor_op()
        assert callback.monitor_op is (better or keras.ops.greater)


def test_the_largest_k_is_the_largest_int64():
    with pytest.raises(ValueError, match=f"at most {2**63 - 1}. Received: k="):
        tflo.metrics.PrecisionAtK(2**63)


@pytest.mark.parametrize("make, oracle", METRICS.values(), ids=METRICS)
def test_columns_of_padding_change_nothing(make, oracle):
    problem = Problem()
    logits, labels, _ = problem.flat()
    problem.labels = np.pad(problem.labels, ((0, 0), (3, 90)), constant_values=-1)
    metric = make()
    metric.update_state(problem.labels, problem.logits())
    np.testing.assert_allclose(metric.result(), oracle(logits, labels), rtol=1e-5)
