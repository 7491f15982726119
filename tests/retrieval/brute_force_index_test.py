"""`BruteForceIndex` against a sort of all scores."""

import concurrent.futures

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.reference.quantized_rows import quantized
from tests.slow import slow_but
from tf_largeout import layers
from tf_largeout.classes import quantized_rows
from tf_largeout.retrieval import BruteForceIndex, predict_top_k

pytestmark = pytest.mark.portable

N, DIM = 300, 16


def _rows(count=N, seed=0):
    return np.random.default_rng(seed).standard_normal((count, DIM)).astype("float32")


def _bias(count=N):
    return np.random.default_rng(1).standard_normal(count).astype("float32")


QUERIES = _rows(7, seed=2)


def _expect(index, rows, bias, k=9, gone=()):
    """Checks the ids against a sort of all scores, without the classes `gone`."""
    scores = QUERIES @ rows.T + bias
    scores[:, list(gone)] = -np.inf
    found_scores, found = index.top_k(QUERIES, k)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(
        found_scores, np.take_along_axis(scores, expected, axis=1), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("has_bias", [False, True], ids=["no bias", "bias"])
def test_the_best_classes_equal_those_of_a_sort_of_all_scores(has_bias):
    bias = _bias() if has_bias else None
    index = BruteForceIndex().build(_rows(), bias)
    _expect(index, _rows(), bias if has_bias else 0.0)
    assert (index.num_classes, index.dim) == (N, DIM)


def test_a_changed_index_equals_a_new_one():
    rows, bias = _rows(), _bias()
    index = BruteForceIndex().build(rows, bias)
    ids = index.add(3 * _rows(5, seed=3), _bias(5))
    assert ids.tolist() == [N, N + 1, N + 2, N + 3, N + 4]
    rows, bias = np.concatenate([rows, 3 * _rows(5, seed=3)]), np.concatenate([bias, _bias(5)])
    _expect(index, rows, bias)
    rows[[4, 1]] = 4 * _rows(2, seed=4)
    index.update([4, 1], rows[[4, 1]])
    _expect(index, rows, bias)
    best = index.top_k(QUERIES, 2)[1].numpy()
    gone = np.unique(best)
    index.remove(gone)
    _expect(index, rows, bias, gone=gone)
    _, allowed = index.top_k(QUERIES, 3, allowed=[int(gone[0]), 7])
    assert set(allowed.numpy().ravel().tolist()) == {7, -1} - set(gone.tolist()) | {-1}
    with pytest.raises(ValueError, match="not removed"):
        index.update(gone[:1], rows[:1])


def test_removed_and_unknown_classes_give_padding():
    index = BruteForceIndex().build(_rows(4))
    index.remove([0, 2])
    scores, ids = index.top_k(QUERIES, 6)
    assert sorted(ids[0].numpy().tolist()) == [-1, -1, -1, -1, 1, 3]
    assert np.isneginf(scores[:, 2:]).all() and np.isfinite(scores[:, :2]).all()
    _, ids = index.top_k(QUERIES, 2, exclude=np.tile([1, 3, -1], (7, 1)))
    assert (ids.numpy() == -1).all()


def test_a_loaded_index_is_bit_identical(tmp_path):
    index = BruteForceIndex().build(_rows(), _bias())
    index.remove([5])
    index.save(tmp_path / "index")
    loaded = BruteForceIndex.load(tmp_path / "index")
    for one, other in zip(index.top_k(QUERIES, N), loaded.top_k(QUERIES, N), strict=True):
        np.testing.assert_array_equal(one, other)
    loaded.add(_rows(2), _bias(2))  # The file does not change.
    assert BruteForceIndex.load(tmp_path / "index").num_classes == N
    assert loaded.num_classes == N + 2
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


@pytest.mark.parametrize("place", [0, 9, 20, 40, -1])
def test_damaged_files_raise_an_error(place, tmp_path):
    path = tmp_path / "index"
    BruteForceIndex().build(_rows()).save(path)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[place] ^= 0x10
    for content in (damaged, whole[: place % len(whole)]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="index"):
            BruteForceIndex.load(path)


def test_searches_can_run_during_changes():
    rows = _rows()
    index = BruteForceIndex().build(rows)

    def grow():
        for _ in range(20):
            index.add(0 * _rows(3))

    def search(_):
        return index.top_k(QUERIES, 1)[1].numpy()

    expected = search(0)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        growing = pool.submit(grow)
        for found in pool.map(search, range(40)):
            np.testing.assert_array_equal(found, expected)
        growing.result()
    assert index.num_classes == N + 60


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda index: index.top_k(QUERIES, 0), "`k` must be"),
        (lambda index: index.top_k(QUERIES[:, :3], 1), "`queries` must be rows"),
        (lambda index: index.add(_rows(2), _bias(2)), "without biases"),
        (lambda index: index.update([1, 1], _rows(2)), "distinct"),
        (lambda index: index.remove([N]), "`ids` must be in"),
        (lambda _: BruteForceIndex().top_k(QUERIES, 1), "Call `build"),
        (lambda _: BruteForceIndex().build(np.zeros([0, 3])), "1 to"),
    ],
    ids=["k", "width", "bias", "twice", "no class", "not built", "no rows"],
)
def test_invalid_input_raises_an_error(call, message):
    with pytest.raises(ValueError, match=message):
        call(BruteForceIndex().build(_rows()))


@pytest.mark.parametrize("allowed", [None, [1, 2]], ids=["all", "allowed"])
def test_queries_that_are_not_finite_raise_an_error(allowed):
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?i)finite"):
        BruteForceIndex().build(_rows()).top_k(QUERIES * np.nan, 1, allowed=allowed)


def test_an_index_of_its_classes_finds_the_best_classes_of_a_model():
    model = keras.Sequential([keras.Input([DIM]), layers.LargeOutput(N)])
    index = BruteForceIndex().build(model.layers[-1].class_embeddings(), _bias())
    model.layers[-1].bias.assign(_bias())
    seen = np.arange(7)[:, np.newaxis]
    expected = predict_top_k(model, QUERIES, 5, exclude=seen, verbose=0)
    found = predict_top_k(model, QUERIES, 5, exclude=seen, index=index, verbose=0)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    index.remove(expected[1][0, :1])
    _, left = predict_top_k(model, QUERIES, 5, allowed=expected[1][0], index=index, verbose=0)
    assert sorted(left[0].tolist()) == sorted([-1, *expected[1][0, 1:].tolist()])


def test_an_empty_batch_has_an_empty_result():
    scores, ids = BruteForceIndex().build(_rows()).top_k(tf.zeros([0, DIM]), 5)
    assert scores.shape == ids.shape == [0, 5]


def test_exclusions_of_many_lengths_use_one_graph():
    index = BruteForceIndex().build(_rows())
    best = index.top_k(QUERIES, 9)[1].numpy()
    for count in (1, 2, 3, 4, 5, 7, 8):
        found = index.top_k(QUERIES, 1, exclude=best[:, :count])[1].numpy()
        np.testing.assert_array_equal(found[:, 0], best[:, count])
    assert len(index._built()._graphs) == 5  # Up to 1, 2, 4 and 8 ids, and none.


def test_packed_rows_are_bit_identical_after_changes_and_loading(tmp_path):
    rng = np.random.default_rng(0)
    rows, more = rng.standard_normal([500, 48]), rng.standard_normal([9, 48])
    queries = rng.standard_normal([6, 48])
    filters = {"exclude": rng.integers(0, 500, [6, 5])}, {"allowed": [7, 490, 3]}, {}
    found = []
    for packed in (False, True):
        index = BruteForceIndex(packed=packed).build(rows, rows[:, 0])
        index.update([7, 8], more[:2])
        index.remove([3, 4])
        index.add(2 * more, more[:, 0])
        index.save(tmp_path / "index")
        loaded = BruteForceIndex.load(tmp_path / "index")
        found.append(
            [one.top_k(queries, 30, **some) for one in (index, loaded) for some in filters]
        )
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


@pytest.mark.parametrize("has_bias", slow_but([True], [False, True]))
def test_an_index_in_int8_equals_one_of_the_rounded_rows(has_bias, tmp_path, monkeypatch):
    monkeypatch.setattr(quantized_rows, "_NUMBERS_AT_A_TIME", 130 * 40)
    rng = np.random.default_rng(0)
    rows, more = rng.standard_normal([300, 40]), 2 * rng.standard_normal([21, 40])
    queries = rng.standard_normal([6, 40])
    bias = (rows[:, 0], more[:, 0]) if has_bias else (None, None)
    filters = {"exclude": rng.integers(0, 300, [6, 5])}, {"allowed": [7, 290, 3, 301]}, {}
    found = []
    for index, change in (
        (BruteForceIndex(embeddings_dtype="int8"), np.float32),
        (BruteForceIndex(), quantized),
    ):
        index.build(change(rows), bias[0])
        index.update([7, 8], change(more[:2]))
        index.remove([3, 4])
        assert index.add(change(more), bias[1]).tolist() == list(range(300, 321))
        index.remove([302])
        index.save(tmp_path / "index")
        loaded = BruteForceIndex.load(tmp_path / "index")
        assert (len(index), index.num_classes, index.dim) == (318, 321, 40)
        answers = [
            one.top_k(queries, 30, **some) for one in (index, loaded) for some in filters
        ]
        found.append([*answers, (index.reconstruct([0, 7, 320]), index.top_k(queries, 330)[1])])
    assert np.shape(found[0][0][0]) == (6, 30)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one[1], other[1])
        np.testing.assert_allclose(one[0], other[0], rtol=1e-5, atol=1e-5)


def test_an_index_in_int8_has_no_float32_rows(tmp_path):
    rows = _rows(4_000)
    sizes = []
    for dtype in (None, "int8"):
        index = BruteForceIndex(packed=False, embeddings_dtype=dtype).build(rows, _bias(4_000))
        index.save(tmp_path / "index")
        sizes.append((tmp_path / "index").stat().st_size)
        arrays = index._built().arrays()
        assert sum(array.nbytes for array in arrays.values()) <= sizes[-1]
    assert sizes[0] > 4_000 * 4 * DIM and sizes[1] < 4_000 * (DIM + 21) + 4_096


def test_a_model_accepts_its_own_index_in_int8_and_no_other():
    model = keras.Sequential([keras.Input([DIM]), layers.LargeOutput(N)])
    head = model.layers[-1]
    head.bias.assign(_bias())
    index = BruteForceIndex(embeddings_dtype="int8").build(head.class_embeddings(), head.bias)
    _, ids = predict_top_k(model, QUERIES, 5, index=index, verbose=0)
    scores = QUERIES @ quantized(head.class_embeddings()).T + _bias()
    np.testing.assert_array_equal(ids, np.argsort(-scores, axis=1, kind="stable")[:, :5])
    head.embeddings.assign(1.02 * head.embeddings)
    with pytest.raises(ValueError, match="current rows"):
        predict_top_k(model, QUERIES, 5, index=index, verbose=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda index: index.build(np.full([5, 3], np.nan)), "infinity in row 0"),
        (lambda index: index.build(np.zeros([5])), "must be rows"),
        (lambda index: index.build(np.zeros([0, 3])), "1 to"),
        (lambda index: index.build(_rows(), _bias(3)), "for each of the 300 rows"),
        (lambda index: index.build(_rows()).add(_rows(2), _bias(2)), "without biases"),
        (lambda index: index.build(_rows()).update([1, 1], _rows(2)), "distinct"),
        (lambda _: BruteForceIndex(embeddings_dtype="int4"), "must be 'int8', or None"),
    ],
    ids=["nan", "rank", "no rows", "biases", "bias", "twice", "dtype"],
)
def test_invalid_input_of_an_index_in_int8_raises_an_error(call, message):
    with pytest.raises(ValueError, match=message):
        call(BruteForceIndex(embeddings_dtype="int8"))
