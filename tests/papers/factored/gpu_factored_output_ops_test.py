"""Ops of the factored output layer on the GPU: steps equal the dense layer, and errors."""

import numpy as np
import pytest
import tensorflow as tf

from tests import gpu
from tests.papers.factored.factored_output_ops_test import (
    Layer,
    assert_same,
    each_bias,
    each_dtype,
    state_of,
)
from tests.papers.factored.factored_output_refusals_test import REFUSED
from tests.reference.factored_problem import Problem, each_loss
from tf_largeout.papers.factored import factored_output_ops

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda_kernels")]


@each_loss
@each_bias
@each_dtype
def test_steps_equal_gradient_descent_on_all_weights(name, bias, dtype):
    problem = Problem(name, bias=bias)
    with tf.device(gpu.NAME):
        layer = Layer(problem, dtype)
        layer.check_steps(problem.labelled(size) for size in (1, 7, 128, 40, 7))
    assert layer.state.steps.numpy() == 5


@pytest.mark.parametrize("shape", [(1, 4), (3, 24), (50, 2), (200, 70)], ids=str)
def test_other_shapes_and_real_valued_targets_are_right(shape):
    num_classes, dim = shape
    problem = Problem("squared_error", dim=dim, num_classes=num_classes)
    with tf.device(gpu.NAME):
        Layer(problem).check_steps(problem.valued(size) for size in (1, 5, 33))
        batch = problem.labelled(5)
        none = batch._replace(ids=batch.ids[:, :0], values=batch.values[:, :0])
        Layer(Problem("squared_error", dim=dim, num_classes=num_classes)).check_steps([none])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [0, 1, 130])
def test_scores_and_gradients_equal_those_of_the_cpu(dtype, size):
    def compute():
        problem = Problem("z_loss", dim=37)
        batch = problem.labelled(size)
        batch = batch._replace(features=batch.features.astype(dtype))
        layer = Layer(problem)
        scores = factored_output_ops.factored_output_scores(
            batch.features, batch.ids, layer.state
        )
        gradient = layer.step_tensor(batch, update=False)
        return scores, gradient, layer.step_tensor(batch), list(layer.state)

    gpu.assert_same_on_gpu(compute, rtol=1e-9, atol=1e-9)


def test_repeated_steps_are_bit_identical():
    def compute():
        problem = Problem("taylor_softmax", dim=90, num_classes=300)
        layer = Layer(problem, np.float32)
        return [layer.step_tensor(problem.labelled(100)) for _ in range(3)] + list(layer.state)

    assert_same(gpu.on_gpu(compute), gpu.on_gpu(compute))


@each_dtype
@pytest.mark.parametrize("name", REFUSED)
def test_a_failing_step_changes_nothing(name, dtype):
    problem = Problem("taylor_softmax")
    change, message = REFUSED[name]
    with tf.device(gpu.NAME):
        layer = Layer(problem, dtype)
        layer.step(problem.labelled(7))
        before, batch = layer.numbers(), problem.labelled(7)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            layer.step(batch, change=change)
        assert_same(layer.numbers(), before)
        layer.step(batch)  # The locks are free.
    assert layer.state.steps.numpy() == 2


def test_scores_of_invalid_ids_and_features_raise_an_error():
    problem = Problem("z_loss")
    batch = problem.labelled(3)
    with tf.device(gpu.NAME):
        state = state_of(problem.factored)
        for bad in (-2, problem.num_classes, 2**40):
            ids = np.array(batch.ids)
            ids[1, 2] = bad
            with pytest.raises(tf.errors.InvalidArgumentError, match=f"got {bad} at example 1"):
                factored_output_ops.factored_output_scores(batch.features, ids, state)
        features = np.array(batch.features)
        features[2, 3] = np.inf
        with pytest.raises(tf.errors.InvalidArgumentError, match="example 2 .*inf"):
            factored_output_ops.factored_output_scores(features, batch.ids, state)


def test_state_read_before_a_step_keeps_its_values():
    problem = Problem("taylor_softmax")
    with tf.device(gpu.NAME):
        layer = Layer(problem)
        read, copies = [one.read_value() for one in layer.state], layer.numbers()
        layer.check_steps([problem.labelled(7)])
    assert_same([one.numpy() for one in read], copies)
