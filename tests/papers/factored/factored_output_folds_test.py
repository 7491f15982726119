"""Factors that would become singular are folded; rows apply the folds when they are read."""

import numpy as np
import pytest
import tensorflow as tf

from tests.papers.factored.factored_output_ops_test import (
    PLACES,
    Layer,
    assert_same,
    each_dtype,
    state_of,
)
from tests.reference.factored_output import with_folds
from tests.reference.factored_problem import Problem, assert_equal
from tf_largeout.papers.factored import factored_output_ops

# Wide enough for float32 rows that once had large values.
FOLDED = {np.float32: 1e-5, np.float64: 1e-9}


def stretched(layer, values):
    """Changes singular values of U, but not the product `V U`."""
    width = layer.U.shape[0]
    random = np.random.default_rng(0)
    left, right = (np.linalg.qr(random.normal(size=[width, width]))[0] for _ in range(2))
    layer.U = left * np.concatenate([values, np.ones(width - len(values))]) @ right.T
    layer.U_inverse = np.linalg.inv(layer.U)
    layer.V = layer.V @ layer.U_inverse


def shrinking(problem, size=8):
    """Returns a batch with one dominant direction, which each step shrinks in U."""
    batch = problem.labelled(size)
    common = np.linspace(-1, 1, problem.dim) / np.sqrt(problem.dim)
    return batch._replace(features=common + 0.02 * batch.features, weights=np.ones(size))


def num_folds(layer):
    return int(layer.state.folds.numpy()[0, 0])


def singular_values(layer):
    return np.linalg.svd(layer.state.mixing.numpy(), compute_uv=False)


SPREAD = [5e-4, 4e-3, 2e3]  # More than a float32 V can hold.


@pytest.mark.parametrize(
    "values, dtype",
    [
        ([5e3], np.float32),
        ([2e-4, 3], np.float32),
        (np.full(17, 1e-3), np.float32),
        ([1e-4, 1e3], np.float64),
        (SPREAD, np.float64),
    ],
)
def test_singular_values_come_into_range_and_logits_do_not_change(values, dtype):
    problem = Problem("z_loss")
    stretched(problem.factored, values)
    layer = Layer(problem, dtype)
    batches = [problem.labelled(7) for _ in range(4)]
    layer.check_steps(batches[:1])
    found = singular_values(layer)
    most = 30 * np.sqrt(17)
    assert 1 / most < found.min() and found.max() < most and num_folds(layer) >= 1
    layer.check_steps(batches[1:])


def test_folds_are_applied_only_to_the_rows_of_targets():
    problem = Problem("z_loss")
    stretched(problem.factored, [1e-4])
    layer = Layer(problem)
    layer.check_steps([problem.labelled(7)])
    folds, vectors = num_folds(layer), layer.state.vectors.numpy()
    assert folds >= 1 and not layer.state.seen.numpy().any()
    batch = problem.labelled(5)
    layer.check_steps([batch])
    met = np.isin(np.arange(problem.num_classes), batch.ids)
    np.testing.assert_array_equal(layer.state.seen, folds * met)
    np.testing.assert_array_equal(layer.state.vectors.numpy()[~met], vectors[~met])


def quickly_shrinking(dtype):
    """Returns a layer that folds about every fifth step if trained on `shrinking`."""
    problem = Problem("squared_error")
    problem.learning_rate = 0.45
    layer = Layer(problem, dtype)
    if dtype == np.float32:  # Rounding errors grow as the direction shrinks.
        layer.inverse_tolerance = 1e-4
    return layer


def trained_with_folds(dtype):
    """Returns a layer with folds that only some rows have applied."""
    layer = quickly_shrinking(dtype)
    while num_folds(layer) < 3:
        layer.check_steps([shrinking(layer.problem)])
    layer.check_steps([shrinking(layer.problem)])
    return layer


@each_dtype
def test_many_folds_equal_steps_of_the_dense_layer_even_if_the_log_is_full(dtype):
    layer = quickly_shrinking(dtype)
    found = []
    for _ in range(200):
        layer.check_steps([shrinking(layer.problem)])
        found.append(num_folds(layer))
    changes = np.diff(found)
    assert max(found) <= PLACES and np.sum(changes < 0) >= 5 and np.sum(changes > 0) >= 20


@each_dtype
def test_pending_folds_can_be_applied_on_read_or_in_place(dtype):
    layer = trained_with_folds(dtype)
    vectors, folds, seen = (
        getattr(layer.state, name).numpy() for name in ("vectors", "folds", "seen")
    )
    assert folds[0, 0] > 0 and 0 < (seen < folds[0, 0]).sum() < len(seen)
    before, weights = layer.numbers(), layer.weights()
    current = factored_output_ops.factored_output_vectors(layer.state)
    np.testing.assert_allclose(
        current, with_folds(vectors, folds, seen), FOLDED[dtype], FOLDED[dtype]
    )
    assert_same(layer.numbers(), before)
    factored_output_ops.factored_output_take_folds(layer.state)
    np.testing.assert_array_equal(layer.state.vectors, current)
    assert num_folds(layer) == 0 and not layer.state.seen.numpy().any()
    assert_equal(layer.weights(), weights, FOLDED[dtype])
    before = layer.numbers()
    factored_output_ops.factored_output_take_folds(layer.state)  # there is nothing to do
    assert_same(layer.numbers(), before)
    layer.check_steps([shrinking(layer.problem)])


def test_rows_read_before_folds_are_applied_keep_their_values():
    layer = trained_with_folds(np.float32)
    read, copy = layer.state.vectors.read_value(), layer.state.vectors.numpy()
    factored_output_ops.factored_output_take_folds(layer.state)
    np.testing.assert_array_equal(read, copy)
    assert np.any(layer.state.vectors.numpy() != copy)


def test_without_folds_rows_equal_those_of_the_variable():
    state = state_of(Problem("z_loss").factored, np.float32)
    np.testing.assert_array_equal(
        factored_output_ops.factored_output_vectors(state), state.vectors
    )


def test_a_graph_without_use_of_the_rows_does_not_compute_them():
    layer = trained_with_folds(np.float32)

    @tf.function
    def steps():
        factored_output_ops.factored_output_vectors(layer.state)
        return layer.state.steps.assign_add(1)

    names = {node.op for node in steps.get_concrete_function().graph.as_graph_def().node}
    before = layer.numbers()
    steps()
    assert "LargeoutFactoredOutputVectors" in names  # until it is pruned
    assert_same(layer.numbers()[:6], before[:6])


@each_dtype
def test_a_log_with_any_values_is_safe(dtype):
    for bad in (np.nan, np.inf, -np.inf, -1.0, 1e300, 3.0):
        layer = Layer(Problem("z_loss"), dtype)
        layer.state.folds.assign(np.full([PLACES + 1, 18], bad))
        layer.state.seen.assign(np.full(97, 2**32 - 1, "uint32"))
        batch = layer.problem.labelled(7)
        scores = factored_output_ops.factored_output_scores(
            batch.features, batch.ids, layer.state
        )
        assert np.all(np.isfinite(scores.a))  # no row lacks a fold
        factored_output_ops.factored_output_take_folds(layer.state)
        assert factored_output_ops.factored_output_vectors(layer.state).shape == (97, 17)
