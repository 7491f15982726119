"""The methods of the package, and those that only notes of the lab compare."""

import dataclasses
import pickle

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.harness import tasks
from benchmarks.methods.models import SAMPLERS
from lab.shared.methods import METHODS
from tests.slow import slow_but
from tf_largeout.layers import LargeOutput


def tiny_task(examples, batch_size, **kwargs):
    make = tasks.synthetic(num_classes=50, examples=examples, **kwargs)
    return make("tiny", batch_size, 0, False)


# Without the method that searches for 128 classes.
ON_50_CLASSES = [name for name in METHODS if name != "wta_16_sigmoid"]


def task_and_model(name):
    task = tiny_task(1000, 64)
    settings = METHODS[name].settings_for(
        "tiny", batch_size=64, num_sampled=20, dim=32, learning_rate=2e-2
    )
    return task, METHODS[name].model(task, settings)


@pytest.mark.parametrize(
    "name", slow_but(["ours", "stock_best", "hierarchical", "taylor"], ON_50_CLASSES)
)
def test_every_method_makes_a_model_that_returns_logits(name):
    task, model = task_and_model(name)
    assert np.shape(model(task.test[0][:3])) == (3, 50)


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_50_CLASSES)
def test_methods_learn(name):
    task, model = task_and_model(name)
    fitted = model.fit(task.train, steps_per_epoch=10, epochs=4, verbose=0, shuffle=False)
    losses = fitted.history["loss"]
    assert losses[-1] < 0.7 * losses[0]


SEVERAL_LABELS = ["recommended", "several_labels", "softmax", "stock_best", "stock_tuned"]
SEVERAL_LABELS += ["nce", "hierarchical"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SEVERAL_LABELS)
def test_each_kind_of_model_trains_on_several_labels(name):
    task = tiny_task(500, 32, max_labels=3)
    settings = METHODS[name].settings_for("tiny", batch_size=32, num_sampled=20, dim=32)
    model = METHODS[name].model(task, settings)
    history = model.fit(task.train, steps_per_epoch=3, verbose=0, shuffle=False)
    assert np.isfinite(history.history["loss"]).all()


def test_a_process_of_a_run_gets_its_method():
    assert pickle.loads(pickle.dumps(METHODS)).keys() == METHODS.keys()


@pytest.mark.parametrize("task", ["place_names", "linux_callees", "another"])
def test_a_static_method_has_the_sampler_of_its_name_on_every_task(task):
    for name in ("uniform", "log_uniform", "frequency"):
        settings = METHODS[name].settings_for(task)
        ours = METHODS["ours"].settings_for(task)
        assert settings == dataclasses.replace(ours, sampler=name)


def test_negatives_by_frequency_are_drawn_by_the_counts_of_the_task():
    task = tiny_task(5000, 64)
    sampler = SAMPLERS["frequency"](task, 10, unique=False)
    layer = LargeOutput(50, sampler=sampler)
    layer.build([None, 4])
    sample = sampler.sample(None, tf.constant(np.arange(50)[:, None]), layer)
    counts = np.maximum(task.label_counts, 1)
    expected = 10 * counts / counts.sum()
    np.testing.assert_allclose(sample.true_expected_count[:, 0], expected, rtol=1e-5)


def test_the_caller_overrides_the_task_and_the_task_overrides_the_method():
    method = METHODS["stock_best"]
    assert method.settings_for("no such task").num_sampled == 8192
    assert method.settings_for("no such task", num_sampled=7).num_sampled == 7
