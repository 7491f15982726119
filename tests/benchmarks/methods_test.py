import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.slow import slow_but
from tf_largeout.benchmarks.harness import tasks
from tf_largeout.benchmarks.methods.class_vectors import class_vectors
from tf_largeout.benchmarks.methods.method_table import METHODS
from tf_largeout.benchmarks.methods.samplers import SAMPLERS
from tf_largeout.layers import LargeOutput


def _task_and_model(name):
    task = tasks.synthetic(num_classes=50, examples=1000)("tiny", 64, 0, False)
    settings = METHODS[name].settings_for(
        "tiny", batch_size=64, num_sampled=20, dim=32, learning_rate=2e-2
    )
    return task, METHODS[name].model(task, settings)


@pytest.mark.parametrize("name", slow_but(["hierarchical", "taylor", "stock_best"], METHODS))
def test_every_method_makes_a_model_that_returns_logits(name):
    task, model = _task_and_model(name)
    assert np.shape(model(task.test[0][:3])) == (3, 50)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_methods_learn(name):
    task, model = _task_and_model(name)
    fitted = model.fit(task.train, steps_per_epoch=10, epochs=4, verbose=0, shuffle=False)
    losses = fitted.history["loss"]
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "recommended",
        "several_labels",
        "nce",
        "hierarchical",
        "softmax",
        "stock_best",
        "stock_tuned",
    ],
)
def test_each_kind_of_model_trains_on_several_labels(name):
    task = tasks.synthetic(num_classes=50, examples=500, max_labels=3)("tiny", 32, 0, False)
    settings = METHODS[name].settings_for("tiny", batch_size=32, num_sampled=20, dim=32)
    history = (
        METHODS[name]
        .model(task, settings)
        .fit(task.train, steps_per_epoch=3, verbose=0, shuffle=False)
    )
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.parametrize("task", ["place_names", "linux_callees", "another"])
def test_a_static_method_has_the_sampler_of_its_name_on_every_task(task):
    for name in ("uniform", "log_uniform", "frequency"):
        settings = METHODS[name].settings_for(task)
        ours = METHODS["ours"].settings_for(task)
        assert settings == dataclasses.replace(ours, sampler=name)


def test_negatives_by_frequency_are_drawn_by_the_counts_of_the_task():
    task = tasks.synthetic(num_classes=50, examples=5000)("tiny", 64, 0, False)
    sampler = SAMPLERS["frequency"](task, 10, unique=False)
    layer = LargeOutput(50, sampler=sampler)
    layer.build([None, 4])
    sample = sampler.sample(None, tf.constant(np.arange(50)[:, None]), layer)
    counts = np.maximum(task.label_counts, 1)
    expected = 10 * counts / counts.sum()
    np.testing.assert_allclose(sample.true_expected_count[:, 0], expected, rtol=1e-5)


def test_nce_starts_from_logits_that_are_log_probabilities():
    task = tasks.synthetic(num_classes=50, examples=500)("tiny", 64, 0, False)
    settings = METHODS["nce"].settings_for("tiny", dim=32, num_sampled=20)
    logits = METHODS["nce"].model(task, settings)(task.test[0])
    np.testing.assert_allclose(tf.reduce_logsumexp(logits, axis=1), 0, atol=0.1)


def test_the_caller_overrides_the_task_and_the_task_overrides_the_method():
    method = METHODS["stock_best"]
    assert method.settings_for("no such task").num_sampled == 8192
    assert method.settings_for("no such task", num_sampled=7).num_sampled == 7


@pytest.mark.slow
def test_classes_that_share_features_have_similar_vectors():
    """Classes 2k and 2k + 1 have the same features, others have others."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 20, 1000)
    features = np.stack([1 + labels // 2 * 3 + j for j in range(3)], axis=1)
    features[:, 0] = np.where(rng.random(1000) < 0.3, 40, features[:, 0])
    task = tasks.from_arrays(features.astype(np.int32), labels, 41, 20, batch_size=50)
    vectors = class_vectors(task, dim=32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors @ vectors.T
    same = np.arange(20)[:, None] // 2 == np.arange(20) // 2
    assert cosines[same].min() > cosines[~same].max() + 0.3
