"""8-bit classes: the stock operations against the op library; ops that have no stock form."""

import numpy as np
import pytest
import tensorflow as tf

from tests import native_ops
from tf_largeout.ops import class_scan_ops as ops
from tf_largeout.ops import stock

native = native_ops.load()


@pytest.fixture
def use(monkeypatch):
    """Returns a function that sets the implementation of `class_scan_ops`."""
    return lambda implementation: monkeypatch.setattr(ops, "gen_ops", implementation)


def problem(rng):
    """Returns random queries, rows and a bias or None, with some that are not finite."""
    num_rows, dim = rng.integers(1, 300), rng.integers(0, 40)
    rows = rng.normal(size=[num_rows, dim]) * 10.0 ** rng.uniform(-3, 3, [num_rows, 1])
    bias = rng.normal(size=num_rows)
    if rng.random() < 0.5:
        rows[rng.integers(num_rows)] = rng.choice([0, np.nan, np.inf])
        bias[rng.integers(num_rows)] = rng.choice([np.nan, np.inf, -np.inf])
    queries = tf.constant(rng.normal(size=[rng.integers(0, 9), dim]), tf.float32)
    bias = tf.Variable(bias, dtype=tf.float32) if rng.random() < 0.5 else None
    return queries, tf.Variable(rows, dtype=tf.float32), bias


def test_codes_scales_and_searches_are_equal(use, monkeypatch):
    for seed in range(60):
        if seed == 30:  # passes in blocks
            monkeypatch.setattr(stock.packed_classes, "_NUMBERS_AT_ONCE", 2000)
        rng = np.random.default_rng(seed)
        queries, rows, bias = problem(rng)
        count = rows.shape[0]
        k = int(rng.integers(1, count + 1))
        use(native)
        expected = ops.pack_classes(rows, bias)
        best = ops.packed_top_k(queries, expected, count, k)
        use(stock)
        found = ops.pack_classes(rows, bias)
        np.testing.assert_array_equal(found.codes, expected.codes)
        limit = expected.scales.shape[0] // 5 * 2
        np.testing.assert_allclose(found.scales[:limit], expected.scales[:limit], 1e-6)
        scores, ids = ops.packed_top_k(queries, found, count, k)
        size = 1 + np.abs(rows).max(initial=0, where=np.isfinite(rows))
        np.testing.assert_allclose(scores, best[0], 1e-5, 1e-5 * size)
        assert np.count_nonzero(ids != best[1]) <= 0.02 * np.size(ids)
        if rows.shape[1] == 0:
            continue
        use(native)  # reads what the stock operations packed
        given = (
            ops.class_top_k(queries, rows, bias, k, found),
            ops.class_top_k(queries, rows, bias, k),
        )
        for one, other in zip(*given, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "op, message",
    [
        ("lsh_query", "LSHSampler.*Use InvertedFileSampler or InvertedFileIndex"),
        ("hash_functions", "LSHSampler.*install tf_largeout with its op library"),
        ("kernel_tree_sample", "KernelTreeSampler.*Use InvertedFileSampler.*UniformSampler"),
        ("server_versions", "servers.*Train on one machine"),
    ],
)
def test_other_ops_name_what_to_use_instead(op, message):
    with pytest.raises(tf.errors.UnimplementedError, match=message):
        getattr(stock, f"largeout_{op}")(1, kind="x")


def test_all_ops_exist():
    names = {name for name in dir(native) if name.startswith("largeout_")}
    names = {name for name in names if not name.endswith(("_eager_fallback", "_grad"))}
    assert names <= set(dir(stock))
