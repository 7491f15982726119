"""`retrieval.build`: the fastest index of enough recall."""

import importlib.util

import numpy as np
import pytest

from tf_largeout import retrieval

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(size=(2000, 8)).astype("float32")
BIAS = RANDOM.normal(size=2000).astype("float32")


def _exact(queries, k):
    return np.argsort(-(queries @ ROWS.T + BIAS), axis=1)[:, :k]


def test_it_returns_an_index_of_the_recall_and_prints_all(capsys):
    index = retrieval.build(ROWS, BIAS, 0.8, ROWS[:100], k=5, batch_size=50)
    found = index.top_k(ROWS[:100], 5)[1].numpy()
    shared = [
        len(np.intersect1d(*pair)) for pair in zip(found, _exact(ROWS[:100], 5), strict=True)
    ]
    assert np.mean(shared) >= 0.8 * 5
    lines = capsys.readouterr().out.splitlines()
    names = ["brute_force", "inverted_file"]
    names += ["hnsw"] if importlib.util.find_spec("hnswlib") else []
    assert [line.split()[0] for line in lines] == names and "recall 1.000" in lines[0]


def test_only_an_exact_search_has_a_recall_of_one():
    index = retrieval.build(ROWS, BIAS, 1, verbose=False)
    assert isinstance(index, retrieval.BruteForceIndex)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"recall": 1.1}, "share"),
        ({"kinds": ["faiss"]}, "names among"),
        ({"kinds": []}, "names among"),
        ({"queries": ROWS[:0]}, "at least one query"),
        ({"queries": ROWS[:2, :3]}, "must be rows"),
        ({"k": 0}, "`k`"),
    ],
)
def test_invalid_arguments_raise_an_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        retrieval.build(ROWS, BIAS, **arguments)
