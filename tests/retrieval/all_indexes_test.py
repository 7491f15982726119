"""Indexes with unusual queries, damaged files, several readers and concurrent changes."""

import concurrent.futures
import gc
import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.harness import machine, own_process
from tests.source_tree import ROOT
from tf_largeout import layers
from tf_largeout.retrieval import BruteForceIndex, HnswIndex, InvertedFileIndex, LSHIndex

N, DIM = 500, 8
ROWS = np.random.default_rng(0).standard_normal((N, DIM)).astype("float32")
QUERIES = np.random.default_rng(1).standard_normal((6, DIM)).astype("float32")
KINDS = {
    "brute force": BruteForceIndex,
    "inverted file": lambda: InvertedFileIndex(num_probes=3),
    "lsh": lambda: LSHIndex(num_candidates=100),
}
if importlib.util.find_spec("hnswlib"):
    KINDS["hnsw"] = HnswIndex
READER = """
import sys
import numpy as np
from tf_largeout import retrieval
index = getattr(retrieval, sys.argv[1]).load(sys.argv[2])
print(index.top_k(np.load(sys.argv[3]), 5)[1].numpy().tolist())
"""


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def make(request):
    return request.param


@pytest.fixture
def index(make):
    return make().build(ROWS)


def test_a_k_above_the_number_of_classes_is_padded(index):
    scores, ids = (one.numpy() for one in index.top_k(QUERIES, N + 3))
    assert (np.sort(ids[:, :N]) == np.arange(N)).all()
    assert (ids[:, N:] == -1).all() and np.isneginf(scores[:, N:]).all()


FILTERS = {
    "no filter": {},
    "exclude": {"exclude": [[1], [2]]},
    "allowed": {"allowed": np.arange(30)},
}


@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize("rows", [1.0, 1e30], ids=["usual rows", "large rows"])
def test_scores_that_overflow_raise_an_error(make, rows, filters):
    queries = np.concatenate([QUERIES[:1], np.full([1, DIM], 3e38 / rows, "float32")])
    with pytest.raises(tf.errors.InvalidArgumentError, match="logits must not overflow"):
        make().build(ROWS * np.float32(rows)).top_k(queries, 4, **filters)


def test_large_queries_whose_scores_do_not_overflow_are_answered(index):
    scores, ids = index.top_k(QUERIES * np.float32(1e20), 4)
    np.testing.assert_array_equal(ids, np.argsort(-QUERIES @ ROWS.T)[:, :4])
    assert np.isfinite(scores).all()


def test_nothing_is_found_if_all_classes_are_excluded(index):
    scores, ids = index.top_k(QUERIES, 4, exclude=np.tile(np.arange(N), (len(QUERIES), 1)))
    assert (ids.numpy() == -1).all() and np.isneginf(scores).all()


def test_an_empty_batch_has_an_empty_result(index):
    scores, ids = index.top_k(QUERIES[:0], 4)
    assert scores.shape == ids.shape == [0, 4]


def test_a_query_that_is_not_finite_raises_an_error(index):
    queries = QUERIES.copy()
    queries[3, 2] = np.nan
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?i)finite"):
        index.top_k(queries, 4)


@pytest.mark.parametrize(
    ("queries", "k", "message"),
    [
        (QUERIES, 0, "`k` must be"),
        (QUERIES[:, :5], 1, "`queries` must be rows"),
        (QUERIES[0], 1, "`queries` must be rows"),
    ],
    ids=["k", "width", "rank"],
)
def test_invalid_arguments_raise_an_error(index, queries, k, message):
    with pytest.raises(ValueError, match=message):
        index.top_k(queries, k)


def test_the_error_for_a_layer_names_the_arrays_to_pass(index):
    with pytest.raises(ValueError, match="layer 'words'.*class_embeddings.*class_biases"):
        index.build(layers.LargeOutput(N, name="words"))


@pytest.mark.parametrize("share", [0.001, 0.02, 0.4, 0.8, 0.999])
def test_truncated_or_damaged_files_raise_an_error(index, share, tmp_path):
    path = tmp_path / "index"
    index.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match="index"):
        type(index).load(path)


def test_a_loaded_index_does_not_change_if_its_file_is_replaced_or_removed(
    make, index, tmp_path
):
    path = tmp_path / "index"
    index.save(path)
    loaded = type(index).load(path)
    make().build(-ROWS).save(path)
    np.testing.assert_array_equal(loaded.reconstruct(np.arange(N)), ROWS)
    path.unlink()
    np.testing.assert_array_equal(loaded.reconstruct([3]), ROWS[3:4])


def test_an_index_has_a_length_and_returns_its_rows(index):
    assert len(type(index)()) == 0
    index.add(2 * ROWS[:2])
    index.update([4], 3 * ROWS[:1])
    index.remove([5, N])
    assert len(index) == N and index.num_classes == N + 2
    rows = index.reconstruct([4, N + 1, 4])
    np.testing.assert_array_equal(rows, [3 * ROWS[0], 2 * ROWS[1], 3 * ROWS[0]])
    assert rows.dtype == "float32" and index.reconstruct([]).shape == (0, DIM)
    for wrong, message in (
        ([5], "not removed"),
        ([N + 2], "`ids` must be in"),
        (3, "integers"),
    ):
        with pytest.raises(ValueError, match=message):
            index.reconstruct(wrong)
    with pytest.raises(ValueError, match="Call `build"):
        type(index)().reconstruct([0])


def test_two_threads_can_save_to_one_path(tmp_path):
    indexes = [BruteForceIndex().build(ROWS[:count]) for count in (N, N // 2)]
    path = tmp_path / "index"

    def save_and_load(index):
        counts = set()
        for _ in range(30):
            index.save(path)
            counts.add(BruteForceIndex.load(path).num_classes)
        return counts

    with concurrent.futures.ThreadPoolExecutor() as pool:
        for counts in pool.map(save_and_load, indexes):
            assert counts <= {N, N // 2}
    assert list(tmp_path.iterdir()) == [path]


def test_a_save_removes_old_files_of_a_killed_save(tmp_path):
    left, of_a_living_one = (tmp_path / f".index.{name}.unfinished" for name in "ab")
    for file in (left, of_a_living_one):
        file.touch()
    os.utime(left, (0, 0))
    BruteForceIndex().build(ROWS).save(tmp_path / "index")
    assert not left.exists() and of_a_living_one.exists()


@pytest.mark.slow
def test_two_processes_can_read_one_file(tmp_path):
    index = InvertedFileIndex(num_probes=3).build(ROWS)
    path, queries = tmp_path / "index", tmp_path / "queries.npy"
    index.save(path)
    np.save(queries, QUERIES)
    command = [sys.executable, "-c", READER, type(index).__name__, path, queries]
    pipes = {"stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    readers = [subprocess.Popen(command, **pipes) for _ in range(2)]
    found = [reader.communicate()[0].strip() for reader in readers]
    assert found == 2 * [str(index.top_k(QUERIES, 5)[1].numpy().tolist())]


def test_queries_of_two_threads_see_the_rows_before_or_after_an_update(index):
    # The best class of each query has its direction, so that each index finds it.
    queries = QUERIES / np.linalg.norm(QUERIES, axis=1, keepdims=True)
    one, other = 20 * queries, 20 * queries[::-1]
    index.update(np.arange(6), one)

    def change():
        for rows in 3 * [other, one]:
            index.update(np.arange(6), rows)

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        changing = pool.submit(change)
        for found in pool.map(lambda _: index.top_k(queries, 1)[1].numpy()[:, 0], range(12)):
            assert found.tolist() in ([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0])
        changing.result()


def test_names_of_variables_of_indexes_are_deterministic(make, index):
    """TensorFlow never frees the 34 KB that each new name takes."""
    again = make().build(ROWS)
    again.update([1], ROWS[:1])
    names = [
        [one.name for one in each._built().rows.matrix.variables() if one is not None]
        for each in (index, again)
    ]
    assert names[0] == names[1]


def _kb_of_an_index(kind, count):
    """Returns the memory lost per index that is built, searched, changed and deleted."""

    def use():
        index = KINDS[kind]().build(ROWS[:50])
        index.remove([1])
        index.top_k(QUERIES, 3)

    for _ in range(300):  # Until TensorFlow has allocated what it keeps for all.
        use()
    gc.collect()
    before = machine.resident_mb()
    for _ in range(count):
        use()
    gc.collect()
    return (machine.resident_mb() - before) * 2**10 / count


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_memory_of_a_deleted_index_is_freed(kind):
    assert own_process.call(_kb_of_an_index, kind, 150) < 10
