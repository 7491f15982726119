"""`HnswIndex` against an exact search in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tf_largeout.retrieval import HnswIndex

pytest.importorskip("hnswlib", reason="not installed: extra `rivals`")

N, DIM, K = 3000, 16, 10
RANDOM = np.random.default_rng(0)
CENTERS = RANDOM.normal(size=(100, DIM))
ROWS = CENTERS[RANDOM.integers(0, 100, N)] + 0.5 * RANDOM.normal(size=(N, DIM))
ROWS = (ROWS * np.exp(0.5 * RANDOM.normal(size=(N, 1)))).astype("float32")
BIAS = RANDOM.normal(size=N).astype("float32")
QUERIES = (ROWS[:200] + 0.5 * RANDOM.normal(size=(200, DIM))).astype("float32")


def _exact(rows=ROWS, bias=BIAS, without=(), k=K):
    scores = QUERIES @ rows.T + bias
    scores[:, list(without)] = -np.inf
    return np.argsort(-scores, axis=1)[:, :k]


def _recall(ids, expected):
    pairs = zip(np.asarray(ids), expected, strict=True)
    return np.mean([len(np.intersect1d(*pair)) / len(pair[1]) for pair in pairs])


@pytest.fixture(scope="module")
def index():
    return HnswIndex().build(ROWS, BIAS)


def test_it_finds_the_target_share_with_scores_of_float32(index):
    scores, ids = index.top_k(QUERIES, K)
    assert _recall(ids, _exact()) >= 0.93
    expected = np.einsum("bd,bkd->bk", QUERIES, ROWS[ids]) + BIAS[ids]
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    assert (np.diff(scores, axis=1) <= 0).all()
    assert _recall(index.top_k(QUERIES, 100)[1], _exact(k=100)) >= 0.93


def test_more_candidates_find_more():
    few, many = (HnswIndex(ef_search=ef).build(ROWS, BIAS) for ef in (1, 500))
    assert (few.ef_search, many.ef_search) == (1, 500)
    recalls = [_recall(one.top_k(QUERIES, K)[1], _exact()) for one in (few, many)]
    assert recalls[0] < recalls[1] and recalls[1] > 0.98


def test_filters_hide_classes(index):
    exclude = _exact(k=5)
    ids = index.top_k(QUERIES, 5, exclude=exclude)[1].numpy()
    assert _recall(ids, _exact()[:, 5:]) >= 0.9
    assert not (ids[:, :, np.newaxis] == exclude[:, np.newaxis]).any()
    allowed = np.arange(0, N, 7)
    expected = allowed[_exact(ROWS[allowed], BIAS[allowed])]
    np.testing.assert_array_equal(index.top_k(QUERIES, K, allowed=allowed)[1], expected)


def test_changes_give_new_searches_and_survive_a_file(index, tmp_path):
    changed = HnswIndex.load(_saved(index, tmp_path))
    best = _exact(k=1)[:, 0]
    removed = np.unique(best)
    new = changed.add(2 * ROWS[:50], BIAS[:50])
    changed.update(np.arange(100, 110), -ROWS[100:110], BIAS[100:110])
    changed.remove(np.setdiff1d(removed, np.arange(100, 110)))
    rows, bias = np.concatenate([ROWS, 2 * ROWS[:50]]), np.concatenate([BIAS, BIAS[:50]])
    rows[100:110] *= -1
    expected = _exact(rows, bias, np.setdiff1d(removed, np.arange(100, 110)))
    for one in (changed, HnswIndex.load(_saved(changed, tmp_path))):
        assert _recall(one.top_k(QUERIES, K)[1], expected) >= 0.93
    assert new[0] == N and _recall(index.top_k(QUERIES, K)[1], _exact()) >= 0.93


def _saved(index, folder):
    index.save(folder / "index")
    return folder / "index"


def test_it_searches_in_a_function_and_for_a_model(index):
    searched = tf.function(lambda queries: index.top_k(queries, K))(QUERIES)
    np.testing.assert_array_equal(searched[1], index.top_k(QUERIES, K)[1])
    layer = tflo.layers.LargeOutput(
        N, embeddings_initializer=ROWS, bias_initializer=BIAS, name="output"
    )
    model = keras.Sequential([keras.Input([DIM]), layer])
    found = tflo.retrieval.predict_top_k(model, QUERIES, K, index=index, verbose=0)
    np.testing.assert_array_equal(found[1], searched[1])
    with pytest.raises(ValueError, match="InvertedFileIndex"):
        tflo.serving.export(model, "unused", index=index)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"recall_target": 1.5}, "recall_target"),
        ({"ef_search": 0}, "ef_search"),
        ({"max_neighbors": 1}, "max_neighbors"),
    ],
)
def test_invalid_arguments_raise_an_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        HnswIndex(**arguments)
