import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_largeout.variables import class_rows


@pytest.mark.parametrize("num_rows, num_shards", [(7, 7), (10, 3), (2**31 - 2, 5), (4, 1)])
def test_shards_are_contiguous_and_differ_by_at_most_one_row(num_rows, num_shards):
    bounds = class_rows.bounds(num_rows, num_shards)
    assert len(bounds) == num_shards
    assert bounds[0][0] == 0 and bounds[-1][1] == num_rows
    assert all(one[1] == other[0] for one, other in zip(bounds, bounds[1:], strict=False))
    sizes = {end - first for first, end in bounds}
    assert max(sizes) - min(sizes) <= 1 and min(sizes) >= 1


def sharded(name, sizes, width=2):
    shards = [keras.Variable(np.zeros([size, width], "float32")) for size in sizes]
    return class_rows.create_table(name, shards), shards


def test_a_table_is_read_and_assigned_as_a_whole():
    table, shards = sharded("rows", [2, 1, 3])
    values = np.arange(12, dtype="float32").reshape(6, 2)
    table.assign(values)
    assert table.shape == (6, 2)
    np.testing.assert_array_equal(shards[1].numpy(), values[2:3])
    np.testing.assert_array_equal(table.numpy(), values)
    assert class_rows.table_of(shards[2]) is table
    assert class_rows.table_of(keras.Variable(1.0)) is None


@pytest.mark.parametrize(
    "sizes, others", [([4, 3], "some"), ([2, 2, 2, 1], None), ([7], "some")]
)
@pytest.mark.parametrize("num_ids", [0, 4, 7])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_a_table_copies_rows_of_another_table_in_pieces(
    monkeypatch, sizes, others, num_ids, dtype
):
    monkeypatch.setattr(class_rows, "_PIECE_BYTES", 3 * 2 * np.dtype(dtype).itemsize)
    random = np.random.default_rng(num_ids)
    before, after = (
        class_rows.ShardedTable("rows", [keras.Variable(one, dtype=dtype) for one in shards])
        for shards in (
            [random.integers(99, size=[size, 2]) for size in (3, 1, 6)],
            [random.integers(99, size=[size, 2]) for size in sizes],
        )
    )
    ids = random.permutation(10)[:num_ids]
    last = random.integers(99, size=[7 - num_ids, 2]).astype("float32")
    expected = np.concatenate(
        [before.numpy()[ids], last if others else after.numpy()[num_ids:]]
    )
    after.take_rows(before, ids, tf.constant(last) if others else None)
    np.testing.assert_array_equal(after.numpy(), expected)
    assert after.shards[0].dtype == dtype


def test_slots_of_shards_are_joined_in_the_order_of_one_table():
    table, shards = sharded("rows", [2, 1])
    step, other = keras.Variable(0.0), keras.Variable(1.0)
    slots = [keras.Variable(np.full([s.shape[0], 2], i, "f")) for i in (1, 2) for s in shards]
    for slot, shard in zip(slots, shards * 2, strict=True):
        setattr(slot, class_rows.SLOT_OF, shard)
    m_0, m_1, v_0, v_1 = slots
    # Adam's order: m and v of one variable, then of the next.
    first, momentum, velocity, last = class_rows.join_shards([step, m_0, v_0, m_1, v_1, other])
    assert first is step and last is other
    assert momentum.shards == (m_0, m_1) and velocity.shards == (v_0, v_1)
    assert class_rows.join_shards([*shards, other]) == [table, other]
    assert class_rows.join_shards([step, m_0, m_1])[1].shards == (m_0, m_1)


def test_other_variables_are_not_joined():
    variables = [keras.Variable(0.0), keras.Variable([1.0, 2.0])]
    assert class_rows.join_shards(variables) == variables
    setattr(variables[1], class_rows.SLOT_OF, variables[0])
    assert not any(map(class_rows.is_shard, variables))
