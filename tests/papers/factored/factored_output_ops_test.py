"""Ops of the factored output layer, compared with NumPy in float64 for each loss and step."""

import os
import subprocess
import sys
import zlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.reference.factored_output import with_folds
from tests.reference.factored_problem import Problem, assert_equal, each_loss
from tests.source_tree import ROOT
from tf_largeout.papers.factored import factored_output_ops
from tf_largeout.papers.factored.factored_output_ops import FactoredState

TOLERANCE = {np.float32: 1e-4, np.float64: 1e-9}
PLACES = 8
INVERSE_TOLERANCE = {np.dtype("float32"): 1e-6, np.dtype("float64"): 1e-9}


def state_of(layer, dtype=np.float64):
    """Returns the variables of a reference layer."""
    doubles = (layer.U, layer.U_inverse, layer.omega, layer.w_bar, layer.Q)
    return FactoredState(
        tf.Variable(layer.V.astype(dtype)),
        *map(tf.Variable, doubles),
        tf.Variable(0, dtype="int64"),
        tf.Variable(np.zeros([PLACES + 1, len(layer.U) + 1])),
        tf.Variable(np.zeros(len(layer.V), "uint32")),
    )


class Layer:
    """The layer of a `Problem`, trained by the ops."""

    def __init__(self, problem, dtype=np.float64):
        self.problem, self.tolerance = problem, TOLERANCE[dtype]
        self.inverse_tolerance = INVERSE_TOLERANCE[np.dtype(dtype)]
        self.state, self.loss = state_of(problem.factored, dtype), problem.factored.loss

    def slopes(self, batch, scores):
        """Returns the slopes of the mean loss of the batch, and the loss."""
        known = [one.numpy() for one in (scores.q, scores.s, scores.a)] + [batch.values]
        scale = batch.weights / max(len(batch.weights), 1)
        by_q, by_s, by_a = self.loss.slopes(*known)
        return scale * by_q, scale * by_s, scale[:, np.newaxis] * by_a

    def step(self, batch, *args, **options):
        """Makes a step; arguments as in `step_tensor`."""
        return self.step_tensor(batch, *args, **options).numpy()

    def step_tensor(self, batch, learning_rate=None, change=lambda arguments: None, **options):
        """Makes a step. `change` can change its arguments."""
        scores = factored_output_ops.factored_output_scores(
            tf.constant(batch.features), batch.ids, self.state
        )
        rate = self.problem.learning_rate if learning_rate is None else learning_rate
        arguments = dict(
            features=batch.features, ids=batch.ids, scores=scores, learning_rate=rate
        )
        arguments.update(zip(("by_q", "by_s", "by_a"), self.slopes(batch, scores), strict=True))
        change(arguments)
        return factored_output_ops.factored_output_step(
            state=self.state, **arguments, **options
        )

    def check_steps(self, batches):
        """Checks that each step equals that of the dense layer."""
        for batch in batches:
            _, expected = self.problem.dense.step(batch, self.problem.learning_rate)
            assert_equal(self.step(batch), expected, self.tolerance)
        self.check_equal()

    def weights(self):
        vectors, mixing, _, offset, *_, folds, seen = (one.numpy() for one in self.state)
        return with_folds(vectors, folds, seen) @ mixing + offset

    def check_equal(self):
        """Compares weights with the dense layer, and statistics with the weights."""
        weights, dense = self.weights(), self.problem.dense
        has_bias = dense.bias is not None
        expected = np.c_[dense.kernel, dense.bias] if has_bias else dense.kernel
        assert_equal(weights, expected, self.tolerance)
        _, mixing, inverse, _, total, gram, *_ = (one.numpy() for one in self.state)
        assert_equal(mixing @ inverse, np.eye(len(mixing)), self.inverse_tolerance)
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
def test_steps_equal_gradient_descent_on_all_weights(name, bias, dtype, size):
    problem = Problem(name, bias=bias)
    layer = Layer(problem, dtype)
    layer.check_steps(problem.labelled(size) for _ in range(6))
    assert layer.state.steps.numpy() == 6


@each_loss
def test_steps_equal_gradient_descent_at_all_simd_levels(name, for_all_simd_levels):
    problem = Problem(name, dim=37, num_classes=61)
    Layer(problem).check_steps(problem.labelled(size) for size in (1, 9, 50))


@pytest.mark.parametrize("shape", [(1, 4), (3, 24), (50, 2)], ids=str)
@pytest.mark.parametrize("name", ["squared_error", "taylor_softmax"])
def test_few_classes_and_narrow_layers_are_right(name, shape):
    num_classes, dim = shape
    problem = Problem(name, dim=dim, num_classes=num_classes)
    Layer(problem).check_steps(problem.labelled(size) for size in (1, 5, 30))


def test_real_valued_targets_are_right():
    problem = Problem("squared_error")
    Layer(problem).check_steps(problem.valued(7) for _ in range(10))


def test_repeated_targets_of_an_example_are_summed():
    problem = Problem("squared_error")
    once, often = Layer(problem), Layer(problem)
    batch = problem.labelled(4)
    batch = batch._replace(ids=np.array([[5], [5], [7], [-1]]), values=np.ones([4, 1]))
    gradient = once.step(batch)

    def repeat(arguments):
        by_a = arguments["by_a"]
        arguments["ids"] = np.repeat(batch.ids, 3, axis=1)
        arguments["by_a"] = np.concatenate([0.5 * by_a, -0.25 * by_a, 0.75 * by_a], axis=1)

    assert_equal(often.step(batch, change=repeat), gradient)
    for one, other in zip(once.numbers(), often.numbers(), strict=True):
        assert_equal(other, one)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_scores_equal_those_computed_from_all_logits(dtype):
    problem = Problem("z_loss")
    batch = problem.labelled(7)
    features = tf.cast(batch.features, dtype)
    scores = factored_output_ops.factored_output_scores(
        features, batch.ids, state_of(problem.factored)
    )
    logits = problem.dense.logits(features.numpy().astype("f8"))
    assert_equal(scores.q.numpy(), (logits**2).sum(1))
    assert_equal(scores.s.numpy(), logits.sum(1))
    targets = np.take_along_axis(logits, np.maximum(batch.ids, 0), 1)
    assert_equal(scores.a.numpy(), np.where(batch.ids >= 0, targets, 0))
    assert scores.version.numpy() == 0


def test_a_batch_without_targets_equals_the_dense_layer():
    problem = Problem("squared_error")
    batch = problem.labelled(5)
    batch = batch._replace(ids=batch.ids[:, :0], values=batch.values[:, :0])
    Layer(problem).check_steps([batch])


def test_an_empty_batch_changes_nothing():
    problem = Problem("z_loss")
    layer = Layer(problem)
    before = layer.numbers()
    assert layer.step(problem.labelled(0)).shape == (0, problem.dim)
    assert_same(layer.numbers(), before)


def test_without_an_update_only_the_gradient_is_computed():
    problem = Problem("taylor_softmax")
    layer = Layer(problem)
    before, batch = layer.numbers(), problem.labelled(7)
    gradient = layer.step(batch, update=False)
    assert_same(layer.numbers(), before)
    np.testing.assert_array_equal(layer.step(batch), gradient)


def test_state_read_before_a_step_keeps_its_values():
    problem = Problem("taylor_softmax")
    layer = Layer(problem)
    read, copies = [one.read_value() for one in layer.state], layer.numbers()
    layer.check_steps([problem.labelled(7)])
    assert_same([one.numpy() for one in read], copies)


def test_shapes_are_inferred_in_graphs_and_keras_variables_are_accepted():
    problem = Problem("squared_error")
    state = FactoredState(*(keras.Variable(one.numpy()) for one in state_of(problem.factored)))

    @tf.function(
        input_signature=[tf.TensorSpec([None, 16]), tf.TensorSpec([None, 2], tf.int64)]
    )
    def step(features, ids):
        scores = factored_output_ops.factored_output_scores(features, ids, state)
        assert scores.q.shape.rank == 1 and scores.a.shape[1] == 2
        by_features = factored_output_ops.factored_output_step(
            features, ids, scores.q, scores.s, scores.a, scores, 1e-4, state
        )
        assert by_features.shape[1] == 16
        return by_features

    assert step(tf.ones([3, 16]), tf.zeros([3, 2], tf.int64)).shape == (3, 16)
    assert int(state.steps.value) == 1


ON_OTHER_THREADS = """
import sys
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
from tests.papers.factored.factored_output_ops_test import checksums
print(checksums())
"""


def checksums():
    problem = Problem("taylor_softmax", dim=90, num_classes=1000)
    layer = Layer(problem, np.float32)
    outputs = [layer.step(problem.labelled(100)) for _ in range(3)]
    return [zlib.crc32(one.tobytes()) for one in (*layer.numbers(), *outputs)]


@pytest.mark.slow
def test_steps_do_not_depend_on_the_number_of_threads():
    threads = "1" if len(os.sched_getaffinity(0)) > 1 else "2"
    result = subprocess.run(
        [sys.executable, "-c", ON_OTHER_THREADS, threads],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(checksums())
