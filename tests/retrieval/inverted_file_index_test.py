"""`InvertedFileIndex` against a sort of all scores."""

import concurrent.futures
import itertools

import numpy as np
import pytest
import tensorflow as tf

from lab.retrieval import row_kinds
from tests.slow import slow_but
from tf_largeout.retrieval import BruteForceIndex, InvertedFileIndex

pytestmark = pytest.mark.portable

N, DIM, K = 4000, 16, 10
RANDOM = np.random.default_rng(0)
CENTRES = RANDOM.standard_normal((60, DIM)).astype("float32")


def _rows(count, seed):
    """Returns rows around some centres, like those of trained classes."""
    random = np.random.default_rng(seed)
    noise = 0.5 * random.standard_normal((count, DIM))
    return (CENTRES[random.integers(0, len(CENTRES), count)] + noise).astype("float32")


ROWS, QUERIES = _rows(N, seed=1), _rows(200, seed=2)
BIAS = RANDOM.standard_normal(N).astype("float32")


@pytest.fixture(scope="module")
def built():
    """An index with the default recall, for tests that do not change it."""
    return InvertedFileIndex().build(ROWS, BIAS)


def _recall(found, exact):
    found, exact = np.asarray(found), np.asarray(exact)
    return (found[:, :, np.newaxis] == exact[:, np.newaxis]).any(axis=1).mean()


def _exact(rows, bias=0.0, k=K):
    return np.argsort(-(QUERIES @ rows.T + bias), axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize(
    "has_bias, target",
    slow_but([(True, 0.95)], itertools.product([True, False], [0.95, 0.99])),
)
def test_enough_lists_are_searched_for_the_requested_recall(has_bias, target):
    bias = BIAS if has_bias else None
    index = InvertedFileIndex(recall_target=target).build(ROWS, bias, queries=QUERIES)
    scores, ids = index.top_k(QUERIES, K)
    exact = _exact(ROWS, 0 if bias is None else bias)
    assert _recall(ids, exact) >= target
    assert index.num_probes < index.num_lists
    fewer = InvertedFileIndex(num_probes=index.num_probes - 1).build(ROWS, bias)
    assert _recall(fewer.top_k(QUERIES, K)[1], exact) < target
    logits = QUERIES @ ROWS.T + (0 if bias is None else bias)
    np.testing.assert_allclose(
        scores, np.take_along_axis(logits, ids.numpy(), axis=1), rtol=1e-5, atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", row_kinds.ROW_KINDS)
@pytest.mark.parametrize("target", [0.9, 0.95, 0.99])
@pytest.mark.filterwarnings("ignore:To find .* must search")
def test_the_requested_recall_is_reached_on_other_queries_for_each_k(kind, target):
    rows, bias, queries = row_kinds.ROW_KINDS[kind](np.random.default_rng(1), 30_000, 32)
    index = InvertedFileIndex(target).build(rows, bias, queries=queries[:2048])
    exact = BruteForceIndex().build(rows, bias)
    asked = queries[2048:]
    for k in (1, 10, 100):
        lowest = exact.top_k(asked, k)[0][:, -1:].numpy()
        found = index.top_k(asked, k)[0].numpy()
        assert (found >= lowest - 1e-5 * np.abs(lowest)).mean() >= target - 0.02
        for one in range(3):
            np.testing.assert_array_equal(index.top_k(asked[one : one + 1], k)[0], found[[one]])


def test_queries_that_need_most_lists_cause_a_warning():
    rows, bias, queries = row_kinds.uniform(np.random.default_rng(1), 4_000, 64)
    with pytest.warns(UserWarning, match="of 253 lists. Use a BruteForceIndex"):
        InvertedFileIndex(0.99).build(rows, bias, queries=queries[:100])


def test_the_default_recall_is_high_on_unseen_queries(built):
    assert _recall(built.top_k(QUERIES, K)[1], _exact(ROWS, BIAS)) > 0.9
    assert 1 <= built.num_probes < built.num_lists / 2


def _clusters(count, seed):
    """Returns rows around centres with frequencies like words, so that many lists are short."""
    random = np.random.default_rng(seed)
    shares = 1 / np.arange(1, 81)
    centres = np.random.default_rng(9).standard_normal((80, DIM))
    drawn = centres[random.choice(80, count, p=shares / shares.sum())]
    return (drawn + 0.3 * random.standard_normal((count, DIM))).astype("float32")


@pytest.mark.slow
def test_results_do_not_depend_on_other_queries():
    rows, queries = _clusters(N, seed=1), _clusters(712, seed=2)
    index = InvertedFileIndex().build(rows, queries=queries[:512])
    queries, exact = queries[512:], np.argsort(-(queries[512:] @ rows.T), axis=1)[:, :K]
    assert _recall(index.top_k(queries, K)[1], exact) > 0.95 - 0.02
    for excluded in (exact[:, :0], exact[:, :3]):
        scores, ids = index.top_k(queries, K, excluded)
        for i in range(40):
            alone = index.top_k(queries[i : i + 1], K, excluded[i : i + 1])
            np.testing.assert_array_equal(alone[0][0], scores[i])
            np.testing.assert_array_equal(alone[1][0], ids[i])


@pytest.mark.parametrize("settings", [{"recall_target": 1}, {"num_probes": 10**6}], ids=str)
def test_a_search_of_all_lists_is_exact(settings):
    index = InvertedFileIndex(**settings).build(ROWS, BIAS, queries=QUERIES)
    assert _recall(index.top_k(QUERIES, K)[1], _exact(ROWS, BIAS)) == 1


@pytest.mark.slow
def test_a_search_of_all_lists_scores_all_of_many_classes():
    index, exact = InvertedFileIndex(num_probes=1).build(ROWS), BruteForceIndex().build(ROWS)
    np.testing.assert_array_equal(index.top_k(QUERIES, N)[1], exact.top_k(QUERIES, N)[1])


def test_filters_leave_the_best_of_the_others():
    index = InvertedFileIndex(num_probes=30).build(ROWS)
    best = index.top_k(QUERIES, 20)[1].numpy()
    exclude = np.where(np.arange(10) % 3 > 0, best[:, :10], -1)
    scores, ids = index.top_k(QUERIES, 5, exclude=exclude)
    left = np.stack([row[~np.isin(row, gone)] for row, gone in zip(best, exclude, strict=True)])
    assert _recall(ids, left[:, :5]) > 0.99
    assert not (ids.numpy()[:, :, np.newaxis] == exclude[:, np.newaxis]).any()
    allowed = np.arange(0, N, 97)
    exact = allowed[np.argsort(-(QUERIES @ ROWS[allowed].T), axis=1)[:, :5]]
    np.testing.assert_array_equal(index.top_k(QUERIES, 5, allowed=allowed)[1], exact)
    _, ids = index.top_k(QUERIES[:1], 3, exclude=[np.arange(N)])
    assert ids.numpy().tolist() == [[-1, -1, -1]]


def test_all_k_classes_are_found_however_many_are_excluded_or_removed():
    index = InvertedFileIndex(num_probes=1).build(ROWS)
    index.remove(np.arange(0, N, 2))
    scores = QUERIES[:20] @ ROWS.T
    scores[:, ::2] = -np.inf
    for k, num_excluded in ((10, 0), (60, 0), (10, 300), (10, N // 2 - 12), (10, N // 2 - 3)):
        best = np.argsort(-scores, axis=1)[:, : num_excluded + k]
        exclude, left = np.split(best, [num_excluded], axis=1)
        found_scores, ids = (one.numpy() for one in index.top_k(QUERIES[:20], k, exclude))
        there = min(k, N // 2 - num_excluded)
        assert (ids[:, :there] >= 0).all() and (ids[:, there:] == -1).all()
        assert (ids[:, :there] % 2 == 1).all()
        assert not (ids[:, :, np.newaxis] == exclude[:, np.newaxis]).any()
        expected = np.take_along_axis(scores, ids[:, :there], axis=1)
        np.testing.assert_allclose(found_scores[:, :there], expected, rtol=1e-5, atol=1e-5)
        if num_excluded > N / 4:  # More than a few lists have.
            np.testing.assert_array_equal(ids[:, :there], left[:, :there])


@pytest.mark.slow  # eager searches and functions have short tests
def test_a_function_finds_all_k_classes_for_any_width_of_exclusions():
    index = InvertedFileIndex(num_probes=1).build(ROWS)
    wide = [tf.TensorSpec([None, DIM]), tf.TensorSpec([None, None], tf.int64)]
    search = tf.function(
        lambda *given: index.top_k(given[0], K, given[1]), input_signature=wide
    )
    order = np.argsort(-(QUERIES @ ROWS.T), axis=1)
    for width in (0, 3, 2_000):
        _, ids = search(QUERIES, order[:, :width])
        assert (ids.numpy() >= 0).all()
        assert not (ids.numpy()[:, :, np.newaxis] == order[:, np.newaxis, :width]).any()
    assert _recall(ids, order[:, 2_000 : 2_000 + K]) > 0.95


def test_changed_rows_are_found():
    index = InvertedFileIndex(num_probes=80).build(ROWS, BIAS)
    new = 2 * _rows(50, seed=3)
    ids = index.add(new, np.zeros(50))
    assert ids.tolist() == list(range(N, N + 50))
    rows, bias = np.concatenate([ROWS, new]), np.concatenate([BIAS, np.zeros(50, "float32")])
    assert _recall(index.top_k(QUERIES, K)[1], _exact(rows, bias)) > 0.9
    changed = np.arange(0, N, 40)
    rows[changed] = 3 * _rows(len(changed), seed=4)
    index.update(changed, rows[changed])
    assert _recall(index.top_k(QUERIES, K)[1], _exact(rows, bias)) > 0.9
    gone = np.unique(index.top_k(QUERIES, 3)[1])
    index.remove(gone)
    bias[gone] = -np.inf
    found = index.top_k(QUERIES, K)[1]
    assert not np.isin(found, gone).any()
    assert _recall(found, _exact(rows, bias)) > 0.9
    assert index.num_classes == N + 50


def test_a_new_row_is_added_to_the_list_of_its_direction():
    noise = 0.01 * np.random.default_rng(5).standard_normal((2, 40, 2))
    rows = np.concatenate([[1, 0] + noise[0], [20, 20] + noise[1]])
    index = InvertedFileIndex(num_probes=1, num_lists=2).build(rows)
    (new,) = index.add([[2, 0]])
    assert index.top_k([[1, -1.2]], 1)[1] == new


def test_the_list_of_classes_with_large_biases_is_searched():
    rows, bias = np.repeat(np.eye(2), 40, axis=0), np.repeat([0, 5], 40)
    index = InvertedFileIndex(num_probes=1, num_lists=2).build(rows, bias)
    assert (index.top_k([[1, 0]], 3)[1].numpy() >= 40).all()


def test_a_loaded_index_is_bit_identical(tmp_path):
    index = InvertedFileIndex(num_probes=7).build(ROWS, BIAS)
    index.remove([5])
    index.save(tmp_path / "index")
    loaded = InvertedFileIndex.load(tmp_path / "index")
    for one, other in zip(index.top_k(QUERIES, K), loaded.top_k(QUERIES, K), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (loaded.num_probes, loaded.num_lists) == (index.num_probes, index.num_lists)
    loaded.update([7], ROWS[:1], BIAS[:1])  # The file does not change.
    again = InvertedFileIndex.load(tmp_path / "index")
    np.testing.assert_array_equal(again.top_k(QUERIES, K)[1], index.top_k(QUERIES, K)[1])
    with pytest.raises(ValueError, match=r"InvertedFileIndex\.load"):
        BruteForceIndex.load(tmp_path / "index")


@pytest.mark.slow
def test_searches_can_run_during_changes():
    index = InvertedFileIndex(num_probes=5).build(ROWS)
    expected = index.top_k(QUERIES, 1)[1].numpy()

    def grow():
        for _ in range(10):
            index.add(np.zeros([3, DIM]))

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        growing = pool.submit(grow)
        for found in pool.map(lambda _: index.top_k(QUERIES, 1)[1].numpy(), range(30)):
            assert (
                found == expected
            ).mean() > 0.95  # Each row increases the mean length of lists.
        growing.result()
    assert index.num_classes == N + 30


def test_a_search_in_a_function_equals_an_eager_one(built):
    @tf.function(
        autograph=False,
        input_signature=[tf.TensorSpec([None, DIM]), tf.TensorSpec([None, None], tf.int64)],
    )
    def search(queries, exclude):
        return built.top_k(queries, K, exclude)

    exclude = built.top_k(QUERIES, 3)[1]
    for one, other in zip(
        search(QUERIES, exclude), built.top_k(QUERIES, K, exclude), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_few_rows_are_supported(count):
    index = InvertedFileIndex().build(ROWS[:count])
    ids = index.top_k(QUERIES, 3)[1].numpy()
    assert set(ids[0].tolist()) <= {-1, *range(count)}
    assert len(index.top_k(QUERIES[:0], 3)[1]) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: InvertedFileIndex(recall_target=0), "`recall_target` must be"),
        (lambda: InvertedFileIndex(recall_target=1.5), r"in \(0, 1\]"),
        (lambda: InvertedFileIndex(num_probes=0), "`num_probes` must be"),
        (lambda: InvertedFileIndex().top_k(QUERIES, 1), "Call `build"),
        (lambda: InvertedFileIndex().build(ROWS, queries=QUERIES[:, :3]), "`queries` must be"),
        (lambda: InvertedFileIndex().build(ROWS * np.nan), "finite"),
    ],
    ids=["no recall", "recall", "probes", "not built", "width", "nan"],
)
def test_invalid_input_raises_an_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_queries_that_are_not_finite_raise_an_error():
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?i)finite"):
        InvertedFileIndex(num_probes=1).build(ROWS).top_k(QUERIES * np.nan, 1)
