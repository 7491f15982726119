import collections

import numpy as np
import pytest
import tensorflow as tf

from tests.reference import lsh_tables as reference
from tf_largeout.papers.lsh import hash_ops, lsh_ops

NUM_CLASSES, NUM_TABLES, BITS = 600, 6, 4
CODES = np.random.default_rng(0).integers(0, 2**BITS, [NUM_TABLES, NUM_CLASSES])
QUERIES = np.random.default_rng(1).integers(-1, 2**BITS, [9, 2 * NUM_TABLES]).astype(np.int32)
LABELS = np.random.default_rng(2).integers(-1, NUM_CLASSES, [9, 3])
every_select = pytest.mark.parametrize("select", ["walk", "frequent"])


def tables(codes=CODES, num_buckets=2**BITS):
    return [tf.Variable(array) for array in reference.tables(codes, num_buckets)]


def query(select, num_sampled, fill=True, **kwargs):
    arguments = {"codes": QUERIES, "labels": LABELS, "seed": [1, 2], "max_lookups": 10_000}
    arguments |= kwargs
    sampled, filled = lsh_ops.lsh_query(
        *arguments.pop("tables", tables()),
        select=select, num_sampled=num_sampled, fill=fill, **arguments,
    )  # fmt: skip
    return sampled.numpy(), filled.numpy()


@every_select
@pytest.mark.parametrize("num_sampled", [1, 100, 400, 597])
def test_candidates_are_distinct_classes_of_the_buckets_without_labels(select, num_sampled):
    sampled, filled = query(select, num_sampled)
    for row, labels, codes, uniform in zip(sampled, LABELS, QUERIES, filled, strict=True):
        met = set(reference.met(CODES, codes)) - set(labels.tolist())
        assert len(set(row.tolist())) == num_sampled
        assert not set(row.tolist()) & set(labels.tolist())
        assert uniform == max(0, num_sampled - len(met))
        assert set(row[: num_sampled - uniform].tolist()) <= met


def test_frequent_takes_the_classes_found_most_often_and_ties_by_lower_id():
    sampled, _ = query("frequent", 50)
    for row, labels, codes in zip(sampled, LABELS, QUERIES, strict=True):
        met = reference.met(CODES, codes)
        best = sorted(set(met) - set(labels.tolist()), key=lambda c: (-met[c], c))[:50]
        assert set(row.tolist()) == set(best)
        assert np.all(np.diff([met[c] for c in row.tolist()]) <= 0)


@every_select
def test_candidates_without_filling_are_padded_with_minus_one(select):
    sampled, filled = query(select, 590, fill=False)
    for row, labels, codes in zip(sampled, LABELS, QUERIES, strict=True):
        met = set(reference.met(CODES, codes)) - set(labels.tolist())
        assert set(row.tolist()) - {-1} == met
        assert np.all(row[len(met) :] == -1)
    assert not filled.any()


@every_select
def test_reads_of_one_giant_bucket_are_limited_by_the_lookups(select):
    giant = tables(np.zeros_like(CODES))
    codes, labels = np.zeros([1, NUM_TABLES], np.int32), np.full([1, 1], -1)
    sampled, filled = query(
        select, 50, tables=giant, codes=codes, labels=labels, max_lookups=30
    )
    assert len(set(sampled[0].tolist())) == 50
    assert 20 <= filled[0] <= (20 if select == "walk" else 45)


def test_without_a_limit_all_entries_of_the_buckets_are_read():
    for few, many in zip(
        query("frequent", 5), query("frequent", 5, max_lookups=10**12), strict=True
    ):
        np.testing.assert_array_equal(few, many)


@every_select
def test_empty_batches_and_batches_without_labels_have_results(select):
    sampled, filled = query(select, 5, codes=QUERIES[:0], labels=LABELS[:0])
    assert sampled.shape == (0, 5) and filled.shape == (0,)
    assert query(select, 5, labels=LABELS[:, :0])[0].shape == (9, 5)


@every_select
def test_draws_depend_only_on_the_seed(select):
    first = query(select, 560)[0]
    np.testing.assert_array_equal(first, query(select, 560)[0])
    assert not np.array_equal(first, query(select, 560, seed=[1, 3])[0])


@every_select
@pytest.mark.parametrize(
    "argument, value, message",
    [
        ("codes", QUERIES[:, :5], "6 tables"),
        ("codes", QUERIES + 2**BITS, "number of buckets, 16"),
        ("labels", LABELS[:4], "batch 9"),
        ("labels", LABELS + NUM_CLASSES, "labels must be class ids"),
        ("seed", [1, 2, 3], "seed|Dimension"),
    ],
)
def test_bad_arguments_raise_an_error(select, argument, value, message):
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=message):
        query(select, 5, **{argument: value})


def test_damaged_tables_raise_an_error():
    offsets, ids = tables()
    ids.assign(ids + NUM_CLASSES)
    for select in ("walk", "frequent"):
        with pytest.raises(tf.errors.DataLossError, match="rebuild"):
            query(select, 50, tables=[offsets, ids])
    with pytest.raises(tf.errors.DataLossError, match="damaged"):
        lsh_ops.lsh_pool(offsets, ids, QUERIES, [1, 2], 50)
    offsets, ids = tables()
    offsets.assign(offsets + 2**31)
    assert query("walk", 5, tables=[offsets, ids])[1].tolist() == [5] * 9


def test_tables_of_the_wrong_shape_or_type_raise_an_error():
    offsets, ids = tables()
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"2\^bits \+ 1"):
        query("walk", 5, tables=[ids, offsets])
    signed = [tf.Variable(tf.cast(table, tf.int32)) for table in (offsets, ids)]
    with pytest.raises(tf.errors.InvalidArgumentError, match="uint32.*, got int32"):
        query("walk", 5, tables=signed)


def test_a_pool_draws_all_entries_with_equal_probability():
    offsets, ids = tables()
    entries = sum(
        (reference.met(CODES, codes) for codes in QUERIES), start=collections.Counter()
    )
    total = sum(entries.values())
    counted = np.zeros(NUM_CLASSES)
    for seed in range(300):
        sampled, num_entries = lsh_ops.lsh_pool(offsets, ids, QUERIES, [seed, 2], 40)
        assert num_entries == total
        counted += np.bincount(sampled, minlength=NUM_CLASSES)
    expected = np.array([entries[c] for c in range(NUM_CLASSES)]) * 300 * 40 / total
    assert np.all(np.abs(counted - expected) <= 5 * np.sqrt(expected) + 1e-6)


def test_a_union_takes_the_first_classes_of_each_list_first():
    lists = [[7, 3, 1], [3, 8, -1], [7, -1, -1]]
    sampled, filled = lsh_ops.union_of_lists(lists, [1, 2], 100, 6)
    assert sampled[:4].numpy().tolist() == [7, 3, 8, 1]
    assert len(set(sampled.numpy().tolist())) == 6
    assert filled == 2


@pytest.mark.parametrize("kind, num_hashes", [("simhash", 4), ("dwta", 2), ("wta", 1)])
def test_a_build_sorts_the_rows_by_their_codes(kind, num_hashes):
    rows = np.random.default_rng(3).normal(size=[500, 24]).astype(np.float32)
    rows[7], rows[9, 2], rows[11] = 0, np.nan, np.inf
    functions = hash_ops.hash_functions(kind, 24, num_hashes, 5, [1, 2], 8)
    offsets = tf.Variable(tf.zeros([5, 2**BITS + 1], tf.uint32))
    ids = tf.Variable(tf.zeros([5, 500], tf.uint32))
    lsh_ops.lsh_build(tf.Variable(rows), functions, offsets, ids, kind, num_hashes, 5, BITS)
    codes = hash_ops.lsh_hash(rows, functions, kind, num_hashes, 5, BITS, 8).numpy()
    expected = reference.tables(codes.T, 2**BITS)
    np.testing.assert_array_equal(offsets, expected[0])
    np.testing.assert_array_equal(ids, expected[1])
    everything = np.arange(500)
    assert lsh_ops.lsh_fresh_share(offsets, ids, codes, everything) == 1
    some = (codes + np.arange(5) // 3).astype(np.int32) % 2**BITS  # The last two are invalid.
    assert float(lsh_ops.lsh_fresh_share(offsets, ids, some, everything)) == pytest.approx(0.6)


def test_a_build_of_rows_in_bfloat16_equals_that_of_equal_float32_rows():
    rows = tf.random.stateless_normal([70_000, 3], (1, 2))  # more than a block of rows
    rows, found = tf.cast(rows, tf.bfloat16), []
    functions = hash_ops.hash_functions("simhash", 3, 4, 2, [1, 2], 8)
    for dtype in (tf.bfloat16, tf.float32):
        offsets = tf.Variable(tf.zeros([2, 2**BITS + 1], tf.uint32))
        ids = tf.Variable(tf.zeros([2, len(rows)], tf.uint32))
        table = tf.Variable(tf.cast(rows, dtype))
        lsh_ops.lsh_build(table, functions, offsets, ids, "simhash", 4, 2, BITS)
        found.append((offsets.numpy(), ids.numpy()))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_tables_that_were_read_keep_their_values():
    offsets, ids = tables()
    before = ids.read_value()
    copy = before.numpy().copy()
    rows = tf.Variable(np.random.default_rng(3).normal(size=[NUM_CLASSES, 8]).astype("float32"))
    functions = hash_ops.hash_functions("simhash", 8, 4, NUM_TABLES, [1, 2], 8)
    lsh_ops.lsh_build(rows, functions, offsets, ids, "simhash", 4, NUM_TABLES, BITS)
    np.testing.assert_array_equal(before, copy)
    assert not np.array_equal(ids, copy)


def test_a_build_with_the_functions_of_another_shape_raises_an_error():
    offsets, ids = tables()
    rows = tf.Variable(tf.ones([NUM_CLASSES, 8]))
    functions = hash_ops.hash_functions("simhash", 8, 4, 40 * NUM_TABLES, [1, 2], 8)
    with pytest.raises(tf.errors.InvalidArgumentError, match="functions must be"):
        lsh_ops.lsh_build(rows, functions, offsets, ids, "simhash", 4, NUM_TABLES, BITS)
    with pytest.raises(tf.errors.InvalidArgumentError, match="one row for each class"):
        lsh_ops.lsh_build(tf.Variable(rows[1:]), functions, offsets, ids, "simhash", 4, 6, 4)
