"""Hashes, and builds, queries and checks of hash tables on the GPU, compared with the CPU."""

import numpy as np
import pytest
import tensorflow as tf

from tests import gpu
from tests.reference import lsh_tables as reference
from tf_largeout.papers.lsh import hash_ops, lsh_ops

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda_kernels")]

NUM_CLASSES, NUM_TABLES, BITS = 600, 6, 4
CODES = np.random.default_rng(0).integers(0, 2**BITS, [NUM_TABLES, NUM_CLASSES])
QUERIES = np.random.default_rng(1).integers(-1, 2**BITS, [9, 2 * NUM_TABLES]).astype(np.int32)
LABELS = np.random.default_rng(2).integers(-1, NUM_CLASSES, [9, 3])
every_select = pytest.mark.parametrize("select", ["walk", "frequent"])


def tables(codes=CODES):
    return [tf.Variable(array) for array in reference.tables(codes, 2**BITS)]


def query(select, num_sampled=50, codes=QUERIES, labels=LABELS, **kwargs):
    """Returns a function that queries `tables()` on the current device."""
    arguments = {"max_lookups": 10_000, "fill": True} | kwargs
    made = arguments.pop("tables", tables)
    return lambda: lsh_ops.lsh_query(
        *made(), codes, labels, [1, 2], select=select, num_sampled=num_sampled, **arguments
    )


def pool(num_sampled=50, codes=QUERIES, made=tables):
    return lambda: lsh_ops.lsh_pool(*made(), codes, [1, 2], num_sampled)


def damaged_tables():
    """Returns tables whose first offsets and two class ids are invalid."""
    offsets, ids = reference.tables(CODES, 2**BITS)
    offsets[:, 0], ids[:, 40], ids[:, 70] = 2**32 - 5, 2**31 + 7, NUM_CLASSES
    return tf.Variable(offsets), tf.Variable(ids)


def strange_vectors(dim):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=[70, dim]).astype("float32")
    for row, value in enumerate([0.0, np.nan, np.inf, -np.inf, 3e38]):
        vectors[row] = value
    vectors[5, dim // 2] = np.nan
    vectors[6:40] *= rng.normal(size=[34, dim]) > 0  # for borrowing between bins
    return vectors


@pytest.mark.parametrize("kind", ["simhash", "wta", "dwta"])
@pytest.mark.parametrize("dim", [8, 33, 128, 200])
def test_hashes_equal_those_of_the_cpu(kind, dim):
    with tf.device("CPU:0"):
        functions = hash_ops.hash_functions(kind, dim, 4, 21, [1, 2])

    def compute():
        vectors = strange_vectors(dim)
        codes = [hash_ops.lsh_hash(vectors, functions, kind, 4, 21, b) for b in (7, 12)]
        none = hash_ops.lsh_hash(vectors[:0], functions, kind, 4, 21, 9)
        return codes, none

    gpu.assert_same_on_gpu(compute, exact=True)


@pytest.mark.parametrize("kind, num_hashes", [("simhash", 4), ("dwta", 2), ("wta", 1)])
@pytest.mark.parametrize("shape", [(1, 8), (500, 24), (3001, 128)], ids=str)
def test_builds_equal_those_of_the_cpu(kind, num_hashes, shape):
    rows = np.random.default_rng(3).normal(size=shape).astype("float32")
    rows[0], rows[-1] = 0, np.nan
    with tf.device("CPU:0"):
        functions = hash_ops.hash_functions(kind, shape[1], num_hashes, 5, [1, 2])

    def compute():
        offsets = tf.Variable(tf.zeros([5, 2**BITS + 1], tf.uint32))
        ids = tf.Variable(tf.zeros([5, shape[0]], tf.uint32))
        lsh_ops.lsh_build(tf.Variable(rows), functions, offsets, ids, kind, num_hashes, 5, BITS)
        return offsets, ids

    gpu.assert_same_on_gpu(compute)


def test_tables_that_were_read_keep_their_values():
    rows = np.random.default_rng(3).normal(size=[NUM_CLASSES, 8]).astype("float32")
    with tf.device("CPU:0"):
        functions = hash_ops.hash_functions("simhash", 8, 4, NUM_TABLES, [1, 2])

    def compute():
        offsets, ids = tables()
        before = ids.read_value()
        lsh_ops.lsh_build(
            tf.Variable(rows), functions, offsets, ids, "simhash", 4, NUM_TABLES, BITS
        )
        return before, ids

    before, after = gpu.on_gpu(compute)
    np.testing.assert_array_equal(before, reference.tables(CODES, 2**BITS)[1])
    assert not np.array_equal(before, after)
    gpu.assert_same_on_gpu(compute)


@every_select
@pytest.mark.parametrize("num_sampled", [1, 100, 597, 610])
@pytest.mark.parametrize("fill", [True, False])
@pytest.mark.parametrize("max_lookups", [1, 30, 10**12])
def test_queries_equal_those_of_the_cpu(select, num_sampled, fill, max_lookups):
    gpu.assert_same_on_gpu(query(select, num_sampled, fill=fill, max_lookups=max_lookups))


@every_select
@pytest.mark.parametrize(
    "codes, labels",
    [
        (QUERIES[:0], LABELS[:0]),
        (QUERIES[:, :0], LABELS),
        (QUERIES, LABELS[:, :0]),
        (np.full_like(QUERIES, -1), LABELS),
        (np.zeros([300, 8 * NUM_TABLES], np.int32), np.zeros([300, 1], np.int64)),
    ],
    ids=["no rows", "no codes", "no labels", "no buckets", "one bucket"],
)
def test_queries_and_pools_of_odd_batch_sizes_equal_those_of_the_cpu(select, codes, labels):
    gpu.assert_same_on_gpu(query(select, codes=codes, labels=labels))
    gpu.assert_same_on_gpu(pool(codes=codes))


@pytest.mark.parametrize("num_sampled", [1, 40, 10_001])
def test_pools_equal_those_of_the_cpu(num_sampled):
    gpu.assert_same_on_gpu(pool(num_sampled))


@every_select
def test_ids_out_of_range_are_skipped(select):
    """The CPU rejects these ids; the GPU ignores them."""
    codes, labels = QUERIES.copy(), LABELS.copy()
    codes[2, 3], codes[4, :5], labels[1, 0], labels[3, 2] = 2**BITS, 2**31 - 1, 2**40, -7
    bad = gpu.on_gpu(query(select, codes=codes, labels=labels))
    drawn = gpu.on_gpu(pool(codes=codes))
    codes[2, 3], codes[4, :5], labels[1, 0], labels[3, 2] = -1, -1, -1, -1
    good = gpu.on_cpu(query(select, codes=codes, labels=labels))
    for got, expected in zip(bad + drawn, good + gpu.on_cpu(pool(codes=codes)), strict=True):
        np.testing.assert_array_equal(got, expected)


@every_select
def test_damaged_tables_give_valid_classes(select):
    sampled, _ = gpu.on_gpu(query(select, 590, tables=damaged_tables))
    assert np.all((sampled >= 0) & (sampled < NUM_CLASSES))
    assert all(len(set(row)) == 590 for row in sampled.tolist())


def test_a_pool_of_damaged_tables_has_minus_one_for_invalid_classes():
    codes = np.arange(2**BITS, dtype=np.int32).repeat(NUM_TABLES).reshape(2**BITS, NUM_TABLES)
    sizes = np.diff(reference.tables(CODES, 2**BITS)[0].astype(np.int64))[:, 1:].sum()
    ids, num_entries = gpu.on_gpu(pool(sizes, codes, damaged_tables))
    assert num_entries == sizes
    assert np.all((ids >= -1) & (ids < NUM_CLASSES))
    assert NUM_TABLES <= np.sum(ids == -1) <= 2 * NUM_TABLES


def test_fresh_shares_equal_those_of_the_cpu():
    classes = np.arange(NUM_CLASSES)
    some = ((CODES.T + np.arange(NUM_TABLES) // 3) % 2**BITS).astype(np.int32)

    def compute():
        made = tables()
        return [
            lsh_ops.lsh_fresh_share(*made, codes[:n], classes[:n])
            for codes in (CODES.T.astype(np.int32), some)
            for n in (0, 1, 64, NUM_CLASSES)
        ]

    gpu.assert_same_on_gpu(compute, exact=True)


def test_ids_out_of_range_are_not_fresh():
    classes, codes = np.arange(10), CODES.T[:10].astype(np.int32)
    codes[2], codes[3], classes[4], classes[5] = -1, 2**BITS, 2**32 + 4, -5
    shares = gpu.on_gpu(lambda: [lsh_ops.lsh_fresh_share(*tables(), codes, classes)])
    assert shares == [np.float32(0.6)]


@every_select
def test_bad_shapes_raise_an_error(select):
    for bad, message in (
        ({"codes": QUERIES[:, :5]}, "6 tables"),
        ({"labels": LABELS[:4]}, "batch 9"),
        ({"tables": lambda: tables()[::-1]}, "uint32"),
    ):
        with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=message):
            gpu.on_gpu(query(select, **bad))


def test_too_many_lookups_for_the_gpu_raise_an_error():
    many = np.zeros([1, 524_286], np.int32)
    wide = lambda: tables(np.zeros([6, 5000], np.int64))  # noqa: E731
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"less than 2\^31 on a GPU"):
        gpu.on_gpu(query("walk", codes=many, labels=[[-1]], max_lookups=2**40, tables=wide))
