"""`LSHIndex` against a sort of all scores."""

import numpy as np
import pytest

from tests.slow import slow_but
from tf_largeout.retrieval import LSHIndex

N, DIM, K = 3000, 32, 5
RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((N, DIM)).astype("float32")
BIAS = 0.1 * RANDOM.standard_normal(N).astype("float32")
QUERIES = (ROWS[:40] + 0.3 * RANDOM.standard_normal((40, DIM))).astype("float32")
HASHES = pytest.mark.parametrize("hash", slow_but(["simhash"], ["simhash", "dwta", "wta"]))


def _recall(found, exact):
    found, exact = np.asarray(found), np.asarray(exact)
    return (found[:, :, np.newaxis] == exact[:, np.newaxis]).any(axis=1).mean()


def _exact(bias=0.0):
    return np.argsort(-(QUERIES @ ROWS.T + bias), axis=1, kind="stable")[:, :K]


@HASHES
def test_recall_grows_with_the_number_of_candidates(hash):
    found = []
    for num_candidates in (50, 400, N):
        index = LSHIndex(num_candidates, hash=hash).build(ROWS, BIAS)
        scores, ids = index.top_k(QUERIES, K)
        found.append(_recall(ids, _exact(BIAS)))
        logits = np.take_along_axis(QUERIES @ ROWS.T + BIAS, ids.numpy(), axis=1)
        np.testing.assert_allclose(scores, logits, rtol=1e-4, atol=1e-4)
    assert 0.2 < found[0] < found[1] < found[2] == 1


@HASHES
def test_by_default_the_nearest_of_near_rows_is_found(hash):
    ids = LSHIndex(hash=hash, num_candidates=300).build(ROWS).top_k(QUERIES, 1)[1].numpy()
    assert (ids[:, 0] == np.arange(40)).mean() > 0.9


@HASHES
def test_results_do_not_depend_on_other_queries(hash):
    # Buckets have thousands of rows, of which 8 * 20 are read.
    index = LSHIndex(20, hash=hash, num_tables=4, num_hashes=1).build(ROWS)
    together = index.top_k(QUERIES, K)[1].numpy()
    alone = [index.top_k(QUERIES[i : i + 1], K)[1].numpy()[0] for i in range(len(QUERIES))]
    np.testing.assert_array_equal(together, alone)


def test_filters_leave_the_best_of_the_others_and_padding():
    index = LSHIndex(100).build(ROWS)
    best = index.top_k(QUERIES, 4)[1].numpy()
    ids = index.top_k(QUERIES, 3, exclude=best[:, :1])[1].numpy()
    assert not (ids == best[:, :1]).any()
    allowed = np.arange(0, N, 31)
    exact = allowed[np.argsort(-(QUERIES @ ROWS[allowed].T), axis=1)[:, :3]]
    np.testing.assert_array_equal(index.top_k(QUERIES, 3, allowed=allowed)[1], exact)
    scores, ids = index.top_k(QUERIES, N + 2)
    assert (ids[:, -2:].numpy() == -1).all() and np.isneginf(scores[:, -2:]).all()
    assert index.top_k(QUERIES[:0], 2)[0].shape == (0, 2)


def test_changed_rows_are_found():
    index = LSHIndex(300).build(ROWS)
    new = index.add(QUERIES[:5])
    np.testing.assert_array_equal(index.top_k(QUERIES[:5], 1)[1][:, 0], new)
    index.update([7, 9], 2 * QUERIES[10:12])
    np.testing.assert_array_equal(index.top_k(QUERIES[10:12], 1)[1][:, 0], [7, 9])
    index.remove(new)
    assert not np.isin(index.top_k(QUERIES, 20)[1], new).any()


def test_a_loaded_index_is_bit_identical(tmp_path):
    index = LSHIndex(200, hash="wta", num_tables=20, num_hashes=2, bin_size=16)
    index.build(ROWS, BIAS)
    index.save(tmp_path / "index")
    loaded = LSHIndex.load(tmp_path / "index")
    for one, other in zip(index.top_k(QUERIES, K), loaded.top_k(QUERIES, K), strict=True):
        np.testing.assert_array_equal(one, other)
    loaded.add(ROWS[:1], BIAS[:1])
    assert loaded.num_classes == N + 1
    assert (loaded.num_candidates, loaded.hash, loaded.num_tables) == (200, "wta", 20)
    assert loaded.bin_size == 16
    index.add(ROWS[:1], BIAS[:1])
    np.testing.assert_array_equal(loaded.top_k(QUERIES, K)[1], index.top_k(QUERIES, K)[1])


# The buckets of a query are 1,000, and 8 * 64 of their entries are fewer.
def test_the_setting_of_the_paper_is_possible():
    """k = 16, M = 1,000, P = 3,000 of Vijayanarasimhan et al. 2015."""
    index = LSHIndex(64, hash="wta", num_tables=1000, num_hashes=3, bin_size=16).build(ROWS)
    assert index._built().tables.arrays()["hash_functions"].shape == (3000 * 16,)
    assert _recall(index.top_k(QUERIES, K)[1], _exact()) > 0.3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_candidates": 0}, "`num_candidates` must be"),
        ({"hash": "md5"}, "`hash` must be one of"),
        ({"num_tables": -1}, "`num_tables` must be"),
        ({"bin_size": 12}, "`bin_size` must be a power of two from 2 to 256.*bin_size=12 "),
        ({"bin_size": 512}, "bin_size=512 .*8 or 16"),
        ({"bin_size": 8.0}, "bin_size=8.0 .of type float"),
    ],
    ids=str,
)
def test_invalid_arguments_raise_an_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        LSHIndex(**arguments)
