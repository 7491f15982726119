"""Row ops: merging, checks, and errors that do not change variables."""

import numpy as np
import pytest
import tensorflow as tf

from tests.reference import optimizers as reference
from tf_largeout.ops import row_ops

NUM_ROWS = 7


def table(*shape, value=1.0):
    return tf.Variable(tf.fill([NUM_ROWS, *shape], value))


# op: (function of (variable, slots, values, ids), shapes of the slots)
OPS = {
    "adam": (lambda w, s, v, i: row_ops.row_adam(w, *s, v, i, step_size=0.1), [(3,), (3,)]),
    "adam_no_momentum": (
        lambda w, s, v, i: row_ops.row_adam(w, None, *s, v, i, step_size=0.1),
        [(3,)],
    ),
    "adagrad": (lambda w, s, v, i: row_ops.row_adagrad(w, *s, v, i, 0.1), [(3,)]),
    "rowwise": (lambda w, s, v, i: row_ops.row_rowwise_adagrad(w, *s, v, i, 0.1), [()]),
    "momentum": (lambda w, s, v, i: row_ops.row_momentum(w, *s, v, i, 0.1), [(3,)]),
}


@pytest.fixture(params=OPS)
def op(request):
    """Returns the op, a variable [7, 3] and its slots."""
    function, shapes = OPS[request.param]
    return function, table(3), [table(*shape) for shape in shapes]


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (17,), (64,)], ids=str)
@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
@pytest.mark.parametrize("n", [0, 1, 50, 40_000])
def test_merge_rows_sums_rows_of_equal_ids(shape, index_dtype, n, for_all_simd_levels):
    rng = np.random.default_rng(0)
    ids = rng.choice([0, 3, 5, 2_000, 3_000, 70_000, 2**30], n).astype(index_dtype)
    values = rng.normal(size=(n, *shape)).astype("float32")
    merged, unique = row_ops.merge_rows(values, ids)
    expected = np.unique(ids)
    np.testing.assert_array_equal(unique, expected)
    assert unique.dtype == index_dtype
    for row, value in zip(expected, merged, strict=True):
        total = values[ids == row].sum(0, dtype="float64")
        np.testing.assert_allclose(value, total, rtol=1e-4, atol=2e-3)


def test_merge_rows_takes_large_ids():
    ids = np.array([2**62, 0, 2**40, 2**62], "int64")
    merged, unique = row_ops.merge_rows(tf.constant([1.0, 2, 3, 4]), ids)
    np.testing.assert_array_equal(unique, [0, 2**40, 2**62])
    np.testing.assert_array_equal(merged, [2, 3, 5])


def test_merge_rows_of_negative_ids_raises_an_error():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"ids\[1\] = -4"):
        row_ops.merge_rows(tf.zeros([2, 3]), tf.constant([1, -4]))


def test_merge_rows_of_values_of_another_length_raises_an_error():
    with pytest.raises(tf.errors.InvalidArgumentError, match="3 ids"):
        row_ops.merge_rows(tf.zeros([2, 3]), tf.constant([1, 2, 3]))


def test_check_row_ids_returns_ids_in_range():
    np.testing.assert_array_equal(row_ops.check_row_ids(tf.constant([0, 6]), 7), [0, 6])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"ids\[1\] = 7 .* id < 7"):
        row_ops.check_row_ids(tf.constant([0, 7]), 7)


@pytest.mark.parametrize("bad", [-1, 7, 2**33])
def test_id_out_of_range_changes_nothing(op, bad):
    function, variable, slots = op
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{bad} is not a row"):
        function(variable, slots, tf.ones([3, 3]), tf.constant([0, 1, bad], tf.int64))
    for unchanged in (variable, *slots):
        np.testing.assert_array_equal(unchanged, tf.ones_like(unchanged))


@pytest.mark.parametrize("shape", [(2, 4), (3, 3), (2,), (2, 3, 1)], ids=str)
def test_values_of_wrong_shape_change_nothing(op, shape):
    function, variable, slots = op
    with pytest.raises(tf.errors.InvalidArgumentError, match="values must be|must be equal"):
        function(variable, slots, tf.ones(shape), tf.constant([0, 1]))
    np.testing.assert_array_equal(variable, tf.ones_like(variable))


def test_slot_of_wrong_shape_changes_nothing(op):
    function, variable, slots = op
    wrong = [tf.Variable(tf.ones([NUM_ROWS - 1, 3])) for _ in slots]
    with pytest.raises(tf.errors.InvalidArgumentError, match="slot must be float.*shape"):
        function(variable, wrong, tf.ones([1, 3]), tf.constant([0]))
    np.testing.assert_array_equal(variable, tf.ones_like(variable))


def test_variable_of_another_dtype_raises_an_error(op):
    function, variable, slots = op
    half = tf.Variable(tf.ones([NUM_ROWS, 3], tf.float16))
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be float32.*half"):
        function(half, slots, tf.ones([1, 3]), tf.constant([0]))


def test_hyperparameters_must_be_scalars():
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match="scalar|rank 0"):
        row_ops.row_adagrad(table(3), table(3), tf.ones([1, 3]), [0], tf.constant([0.1]))


def test_a_finished_read_causes_no_copy_of_later_reads(op):
    function, variable, slots = op
    places = []
    for _ in range(3):
        places.append(np.asarray(memoryview(variable.read_value())).ctypes.data)
        function(variable, slots, tf.ones([1, 3]), [2])
    assert len(set(places)) == 1


def test_live_reads_keep_their_values_through_all_updates(op):
    function, variable, slots = op
    kept, copies = [], []
    for _ in range(3):
        kept.append(variable.read_value())
        copies.append(kept[-1].numpy().copy())
        function(variable, slots, tf.ones([1, 3]), [2])
        function(variable, slots, tf.ones([1, 3]), [2])
    np.testing.assert_array_equal(kept, copies)
    assert len(np.unique(np.asarray(copies)[:, 2])) > 1


def test_tensors_read_before_an_update_keep_their_values(op):
    function, variable, slots = op
    before = variable.read_value()
    function(variable, slots, tf.ones([2, 3]), tf.constant([0, 6]))
    np.testing.assert_array_equal(before, tf.ones_like(before))
    assert np.all(variable.numpy()[[0, 6]] != 1)
    np.testing.assert_array_equal(variable[1:6], tf.ones([5, 3]))


@pytest.mark.parametrize("dim", [1, 3, 16, 33, 128])
def test_updates_by_many_slices_equal_the_formula(dim, for_all_simd_levels):
    rng = np.random.default_rng(5)
    start = rng.normal(size=(50, dim)).astype("float32")
    w, m, v = tf.Variable(start), tf.Variable(0 * start), tf.Variable(0 * start)
    values = rng.normal(size=(3_000, dim)).astype("float32")
    ids = rng.integers(0, 50, 3_000)
    oracle = reference.Adam(start, 0.1, row_beta_1=0.9, row_step_offset=0)
    oracle.step(values, ids)
    step_size = 0.1 * np.sqrt(1 - 0.999) / (1 - 0.9)
    row_ops.row_adam(w, m, v, values, ids, step_size)
    np.testing.assert_allclose(w, oracle.weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(m, oracle.m, rtol=1e-4, atol=1e-4)


def test_graph_keeps_the_order_of_updates_and_reads():
    variable, momentum = table(3), table(3, value=0.0)

    @tf.function
    def steps():
        first = variable[0]
        row_ops.row_momentum(variable, momentum, tf.ones([1, 3]), [0], 1.0, decay=0.5)
        second = variable[0]
        row_ops.row_momentum(variable, momentum, tf.ones([1, 3]), [0], 1.0, decay=0.5)
        return first, second, variable[0]

    rows = [float(row[0]) for row in steps()]
    assert rows == [1.0, 0.0, -1.5]
