"""The updates of each row-sparse optimizer, with sparse and dense gradients."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.optimizers.table import (
    NUM_ROWS,
    OPTIMIZERS,
    dense,
    one_of_each_class,
    random_slices,
    random_weights,
    state,
)
from tests.slow import slow_but
from tf_largeout import optimizers

each_shape = pytest.mark.parametrize(
    "dims",
    [(2, 3), *(pytest.param(dims, marks=pytest.mark.slow) for dims in [(), (5,)])],
    ids=str,
)


@pytest.fixture(params=OPTIMIZERS)
def member(request):
    return OPTIMIZERS[request.param]


def test_every_public_optimizer_is_in_the_table():
    public = [c for c in vars(optimizers).values() if inspect.isclass(c)]
    assert {member.ours for member in OPTIMIZERS.values()} == set(public)


# Rows of one number, of less than a SIMD vector, of one vector, and of several and a rest.
SHAPES_AND_LEVELS = [
    (dims, level)
    for dims in [(), (5,), (2, 3), (16,), (40,)]
    for level in ["generic", "avx2", "avx512"]
]


@pytest.mark.parametrize(
    "dims, level",
    slow_but(
        [
            ((), "avx512"),
            ((5,), "generic"),
            ((2, 3), "avx2"),
            ((16,), "generic"),
            ((40,), "avx2"),
            ((40,), "avx512"),
        ],
        SHAPES_AND_LEVELS,
    ),
    ids=str,
)
def test_sparse_step_equals_the_formula(member, dims, level, set_simd_level):
    set_simd_level(level)
    rng = np.random.default_rng(1)
    start = random_weights(rng, dims)
    variable = keras.Variable(start)
    oracle = member.make_oracle(start)
    optimizer = member.make()
    optimizer.build([variable])
    for _ in range(4):
        slices = random_slices(rng, dims)
        optimizer.apply([slices], [variable])
        oracle.step(slices.values, slices.indices)
    np.testing.assert_allclose(variable, oracle.weights, rtol=1e-4, atol=1e-5)


@one_of_each_class
@pytest.mark.parametrize("index_dtype", slow_but(["int32"], ["int32", "int64"]))
def test_graph_equals_eager(member, index_dtype):
    rng = np.random.default_rng(2)
    start = random_weights(rng)
    eager, graph = keras.Variable(start), keras.Variable(start)
    for_eager, for_graph = member.make(), member.make()
    for_graph.build([graph])
    apply = tf.function(lambda slices: for_graph.apply([slices], [graph]))
    for _ in range(3):
        slices = random_slices(rng, index_dtype=index_dtype)
        for_eager.apply([slices], [eager])
        apply(slices)
    np.testing.assert_allclose(eager, graph, rtol=1e-6, atol=1e-6)


def test_rows_without_a_gradient_keep_their_weights_and_slots(member):
    rng = np.random.default_rng(3)
    variable = keras.Variable(random_weights(rng))
    optimizer = member.make()
    optimizer.apply([random_slices(rng)], [variable])
    before = state(optimizer, variable)
    slices = random_slices(rng)
    optimizer.apply([slices], [variable])
    untouched = np.setdiff1d(np.arange(NUM_ROWS), slices.indices)
    assert len(untouched)
    assert not np.array_equal(before[0], variable)
    for old, new in zip(before, state(optimizer, variable), strict=True):
        if old.shape[:1] == (NUM_ROWS,):
            np.testing.assert_array_equal(old[untouched], new[untouched])


@each_shape
def test_a_dense_gradient_is_bit_identical_to_keras(member, dims):
    if member.keras_class is None:
        pytest.skip("Keras has no such optimizer")
    rng = np.random.default_rng(4)
    start = random_weights(rng, dims)
    ours, theirs = keras.Variable(start), keras.Variable(start)
    optimizer, keras_optimizer = member.make(), member.make_keras()
    for _ in range(3):
        gradient = dense(random_slices(rng, dims))
        optimizer.apply([gradient], [ours])
        keras_optimizer.apply([gradient], [theirs])
    np.testing.assert_array_equal(ours, theirs)


@each_shape
def test_a_dense_gradient_equals_a_sparse_one_of_all_rows(member, dims):
    if not member.has_one_rule:
        pytest.skip("sparse gradients have another rule")
    rng = np.random.default_rng(5)
    start = random_weights(rng, dims)
    sparse, full = keras.Variable(start), keras.Variable(start)
    for_sparse, for_full = member.make(), member.make()
    for _ in range(3):
        slices = random_slices(rng, dims)
        ids = tf.concat([slices.indices, tf.range(NUM_ROWS, dtype=tf.int64)], 0)
        values = tf.concat([slices.values, tf.random.normal([NUM_ROWS, *dims])], 0)
        slices = tf.IndexedSlices(values, ids, slices.dense_shape)
        for_sparse.apply([slices], [sparse])
        for_full.apply([dense(slices)], [full])
    for ours, theirs in zip(state(for_sparse, sparse), state(for_full, full), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_dense_and_sparse_steps_can_be_mixed(member):
    rng = np.random.default_rng(6)
    start = random_weights(rng)
    variable, oracle = keras.Variable(start), member.make_oracle(start)
    optimizer = member.make()
    for step in range(6):
        slices = random_slices(rng)
        if step % 3 == 2:
            slices = dense(slices)
            oracle.dense_step(slices)
        else:
            oracle.step(slices.values, slices.indices)
        optimizer.apply([slices], [variable])
    np.testing.assert_allclose(variable, oracle.weights, rtol=1e-4, atol=1e-5)


def test_an_empty_gradient_changes_only_the_iterations(member):
    variable = keras.Variable(random_weights(np.random.default_rng(7)))
    optimizer = member.make()
    optimizer.build([variable])
    before = state(optimizer, variable)
    optimizer.apply([random_slices(np.random.default_rng(7), n=0)], [variable])
    assert int(optimizer.iterations.numpy()) == 1
    optimizer.iterations.assign(0)
    for old, new in zip(before, state(optimizer, variable), strict=True):
        np.testing.assert_array_equal(old, new)


@one_of_each_class
def test_repeated_runs_are_bit_identical(member):
    def run():
        rng = np.random.default_rng(8)
        variable = keras.Variable(rng.normal(size=(NUM_ROWS, 33)).astype("float32"))
        optimizer = member.make()
        for _ in range(2):
            optimizer.apply([random_slices(rng, (33,), n=40_000)], [variable])
        return state(optimizer, variable)

    for first, second in zip(run(), run(), strict=True):
        np.testing.assert_array_equal(first, second)


def test_config_round_trip(member):
    optimizer = member.make(clipnorm=2.0, name="mine")
    config = keras.saving.serialize_keras_object(optimizer)
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is type(optimizer)
    assert again.get_config() == optimizer.get_config()


@one_of_each_class
def test_a_schedule_sets_the_learning_rate_of_each_step(member):
    rng = np.random.default_rng(9)
    start = random_weights(rng)
    variable, oracle = keras.Variable(start), member.make_oracle(start)
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([0, 1], [0.1, 0.01, 0.05])
    optimizer = member.make(schedule)
    for learning_rate in (0.1, 0.01, 0.05):
        slices = random_slices(rng)
        optimizer.apply([slices], [variable])
        oracle.learning_rate = learning_rate
        oracle.step(slices.values, slices.indices)
    np.testing.assert_allclose(variable, oracle.weights, rtol=1e-4, atol=1e-5)
