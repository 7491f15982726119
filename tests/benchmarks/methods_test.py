import dataclasses
import pickle

import numpy as np
import pytest
import tensorflow as tf

from tests.benchmarks.tiny_models import (
    check_that_it_learns,
    check_training_on_several_labels,
    task_and_model,
)
from tests.slow import slow_but
from tf_largeout.benchmarks.harness import tasks
from tf_largeout.benchmarks.methods.method_table import METHODS
from tf_largeout.benchmarks.methods.samplers import SAMPLERS
from tf_largeout.layers import LargeOutput


@pytest.mark.parametrize("name", slow_but(["ours", "stock_best"], METHODS))
def test_every_method_makes_a_model_that_returns_logits(name):
    task, model = task_and_model(METHODS[name])
    assert np.shape(model(task.test[0][:3])) == (3, 50)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_methods_learn(name):
    check_that_it_learns(METHODS[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["recommended", "several_labels", "softmax", "stock_best", "stock_tuned"]
)
def test_each_kind_of_model_trains_on_several_labels(name):
    check_training_on_several_labels(METHODS[name])


def test_a_process_of_a_run_gets_its_method():
    assert pickle.loads(pickle.dumps(METHODS)).keys() == METHODS.keys()


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


def test_the_caller_overrides_the_task_and_the_task_overrides_the_method():
    method = METHODS["stock_best"]
    assert method.settings_for("no such task").num_sampled == 8192
    assert method.settings_for("no such task", num_sampled=7).num_sampled == 7
