"""The steps of everyone compute what the reference says, at small sizes and on the CPU."""

import gc

import numpy as np
import pytest

from custom_ops.cuda.compare import measure, ours, problem, reference
from custom_ops.cuda.compare.__main__ import REFERENCES
from custom_ops.cuda.compare.problem import Sizes
from custom_ops.cuda.compare.step import TASKS, Offer
from tests.cuda_compare.host_functions import HostFunctions, host_blas, host_library

# Labels that are negatives too, classes that are several labels; no sizes are equal.
SIZES = Sizes(classes=300, dim=17, batch=40, sampled=90, exact_batch=23, top_k=7, block=64)


def inputs(task):
    return (problem.sampled_problem if task == "sampled" else problem.class_problem)(SIZES, 3)


def check(task, offer):
    made = measure.measure(task, offer, inputs(task), REFERENCES[task](inputs(task)), 2)
    assert made.failure == ""
    assert len(made.milliseconds) == 2 and made.median > 0
    assert max(made.errors.values()) < 1e-4  # in float32, on a CPU


def test_the_problem_has_hits_and_repeated_labels():
    made = inputs("sampled")
    assert np.isin(made.labels, made.sampled).any()
    assert len(np.unique(made.labels)) < len(made.labels)
    assert len(np.unique(made.sampled)) == SIZES.sampled
    assert np.isin(made.touched, made.labels).sum() < len(made.touched)


@pytest.mark.parametrize("task", TASKS)
def test_ours_computes_the_reference_and_frees_its_memory(task):
    functions = HostFunctions()
    for offer in ours.offers(host_library(functions), host_blas())[task]:
        check(task, offer)
    assert not functions.memory


def test_ours_without_cublas_has_no_sampled_step():
    assert set(ours.offers(host_library(HostFunctions()), None)) == set(TASKS) - {"sampled"}


def test_a_step_that_finds_no_memory_is_told_of_and_frees_what_it_had():
    functions = HostFunctions(most_bytes=20000)
    (offer,) = ours.offers(host_library(functions), None)["softmax"]
    made = measure.measure("softmax", offer, inputs("softmax"), {}, 2)
    gc.collect()
    assert made.failure == "CudaError: allocate: out of memory"
    assert made.median is None


def test_a_launcher_that_is_wrong_is_not_timed():
    functions = HostFunctions()
    functions.class_top_k = lambda *arguments: 0  # leaves NaN and -1
    (offer,) = ours.offers(host_library(functions), None)["top_k"]
    expected = reference.top_k(inputs("top_k"))
    made = measure.measure("top_k", offer, inputs("top_k"), expected, 2)
    assert made.failure == "wrong: scores by nan, logits of ids by nan; tolerance 3e-04"
    assert made.milliseconds == []


@pytest.mark.parametrize("task", TASKS)
def test_pytorch_computes_the_reference(task):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from custom_ops.cuda.compare import torch_steps

    for offer in torch_steps.offers("cpu")[task]:
        check(task, offer)


@pytest.mark.parametrize("task", TASKS)
def test_jax_computes_the_reference(task):
    pytest.importorskip("jax", reason="JAX is not installed")
    from custom_ops.cuda.compare import jax_steps

    for offer in jax_steps.offers()[task]:
        check(task, offer)


class CountedStep:
    """A step that takes a time of its own."""

    def __init__(self):
        self.runs = self.waits = 0

    def run(self):
        self.runs += 1

    def wait(self):
        self.waits += 1


def test_short_steps_are_repeated_and_waited_for_once_a_repetition():
    step = CountedStep()
    assert len(measure.time_step(step, 5)) == 5
    assert step.waits == 3 + 5
    assert step.runs == 3 + 5 * 200


def test_results_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match="expected"):
        measure.errors_of({"a": np.ones(3)}, {"a": np.ones((3, 1))})
    offer = Offer("x", "", "float32", lambda problem: 1 / 0)
    assert measure.measure("top_k", offer, None, {}, 1).failure.startswith("ZeroDivisionError")
