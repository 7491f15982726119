"""Ops of the factored output layer against float64 numpy, loss by loss and step by step."""

import numpy as np
import pytest
import tensorflow as tf

from tests.reference.factored_problem import Problem, assert_equal, each_loss
from tf_largeout import ops
from tf_largeout.ops import FactoredState

TOLERANCE = {np.float32: 1e-4, np.float64: 1e-9}


def state_of(layer, dtype=np.float64):
    """The variables of a reference layer."""
    doubles = (layer.U, layer.U_inverse, layer.omega, layer.w_bar, layer.Q)
    return FactoredState(
        tf.Variable(layer.V.astype(dtype)),
        *map(tf.Variable, doubles),
        tf.Variable(0, dtype="int64"),
    )


class Layer:
    """The layer of a `Problem`, trained by the ops."""

    def __init__(self, problem, dtype=np.float64):
        self.problem, self.tolerance = problem, TOLERANCE[dtype]
        self.state, self.loss = state_of(problem.factored, dtype), problem.factored.loss

    def slopes(self, batch, scores):
        """Of the mean loss of the batch, and the loss."""
        known = [one.numpy() for one in (scores.q, scores.s, scores.a)] + [batch.values]
        scale = batch.weights / max(len(batch.weights), 1)
        by_q, by_s, by_a = self.loss.slopes(*known)
        return scale * by_q, scale * by_s, scale[:, np.newaxis] * by_a

    def step(self, batch, learning_rate=None, change=lambda arguments: None, **options):
        """A step; `change` may edit its arguments first."""
        scores = ops.factored_output_scores(tf.constant(batch.features), batch.ids, self.state)
        rate = self.problem.learning_rate if learning_rate is None else learning_rate
        arguments = dict(
            features=batch.features, ids=batch.ids, scores=scores, learning_rate=rate
        )
        arguments.update(zip(("by_q", "by_s", "by_a"), self.slopes(batch, scores), strict=True))
        change(arguments)
        return ops.factored_output_step(state=self.state, **arguments, **options).numpy()

    def check_steps(self, batches):
        """Each step is that of the dense layer."""
        for batch in batches:
            _, expected = self.problem.dense.step(batch, self.problem.learning_rate)
            assert_equal(self.step(batch), expected, self.tolerance)
        self.check_equal()

    def weights(self):
        vectors, mixing, _, offset, *_ = (one.numpy() for one in self.state)
        return vectors.astype("f8") @ mixing + offset

    def check_equal(self):
        """The weights are those of the dense layer, and what is kept of them is right."""
        weights, dense = self.weights(), self.problem.dense
        has_bias = dense.bias is not None
        expected = np.c_[dense.kernel, dense.bias] if has_bias else dense.kernel
        assert_equal(weights, expected, self.tolerance)
        _, mixing, inverse, _, total, gram, _ = (one.numpy() for one in self.state)
        assert_equal(mixing @ inverse, np.eye(len(mixing)))
        assert_equal(total, weights.sum(0), self.tolerance * len(weights))
        assert_equal(gram, weights.T @ weights, self.tolerance)
        np.testing.assert_array_equal(gram, gram.T)

    def numbers(self):
        return [one.numpy() for one in self.state]


def assert_same(numbers, others):
    for one, other in zip(numbers, others, strict=True):
        np.testing.assert_array_equal(one, other)


each_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=["float32", "float64"])
each_bias = pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])


@each_loss
@each_bias
@each_dtype
@pytest.mark.parametrize("size", [1, 7, 128])
def test_steps_are_those_of_gradient_descent_on_all_weights(name, bias, dtype, size):
    problem = Problem(name, bias=bias)
    layer = Layer(problem, dtype)
    layer.check_steps(problem.labelled(size) for _ in range(6))
    assert layer.state.steps.numpy() == 6


@each_loss
def test_so_they_are_at_all_simd_levels(name, for_all_simd_levels):
    problem = Problem(name, dim=37, num_classes=61)
    Layer(problem).check_steps(problem.labelled(size) for size in (1, 9, 50))
