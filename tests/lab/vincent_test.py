"""The programs of the note on Vincent et al. 2015."""

import json
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.harness import machine, own_process
from lab import corpora
from lab.vincent import __main__, ratings, similarity
from tests.examples import ratings_test, word_embeddings_test
from tf_largeout import datasets, layers, losses

PAIRS = (
    "# comment\nred\tgreen\t9\nred\tlake\t1\nLake\triver\t8\nred\tunknown\t5\nhot\tking\t2\n"
)


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch):
    monkeypatch.setattr(own_process, "call", lambda function, *given: function(*given))
    monkeypatch.setattr(machine, "use", lambda *_: None)


def test_the_dense_loss_equals_that_of_the_library():
    random = np.random.default_rng(0)
    features, rows = random.normal(size=[4, 3]), random.normal(size=[9, 3])
    layer = layers.FactoredOutput(9, 0.1, embeddings_initializer=rows, use_bias=False)
    targets = tf.sparse.from_dense(np.float32(random.integers(0, 3, [4, 9])))
    logits = layer(np.float32(features))
    found = losses.SquaredErrorLoss(ratings._WEIGHT)(targets, logits)
    dense = ratings.DenseSquaredError()(targets, np.float32(features @ rows.T))
    assert float(found) == pytest.approx(float(dense), rel=1e-5)


def test_popularity_ranks_the_films_that_most_users_rated():
    stars = np.array([[5, 0, 1, 0], [4, 3, 0, 0], [2, 1, 0, 0]])
    liked = np.array([[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]], bool)
    # User 0 gets item 1 first. User 1 gets item 2 before item 3. User 2 likes nothing.
    expected = (1 + 1 / np.log2(3)) / 2
    assert ratings.ndcg_of_popularity(stars, liked, k=2) == pytest.approx(expected)


def test_ranks_of_equal_values_are_their_mean():
    np.testing.assert_array_equal(similarity.ranks(np.array([3, 1, 3, 7])), [1.5, 0, 1.5, 3])


def test_correlation_is_over_the_known_pairs():
    ids = {"a": 0, "b": 1, "c": 2}
    rows = np.array([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0]])
    pairs = [("a", "b", 9.0), ("a", "c", 1.0), ("b", "c", 2.0), ("a", "x", 5.0)]
    known = similarity.known_pairs(pairs, ids)
    assert len(known[0]) == 3 and similarity.correlation(known, rows) == pytest.approx(1.0)


@pytest.mark.slow
def test_a_factored_and_a_dense_layer_have_the_same_losses(tmp_path, monkeypatch):
    monkeypatch.setattr(ratings, "_BATCH_SIZE", 8)
    monkeypatch.setattr(datasets, "ml_100k_ratings", ratings_test._ratings)
    arguments = ["--epochs", "3", "--num-items", "24", "50", "--steps", "2", "--seeds", "1"]
    report = ratings.main([*arguments, "--out", str(tmp_path)])
    assert json.loads((tmp_path / "ratings.json").read_text()) == report
    curves = [run["losses"] for run in report["runs"] if run["kind"] == "curve"]
    np.testing.assert_allclose(*curves, rtol=1e-4)
    times = [run["cpu_ms"] for run in report["runs"] if run["kind"] == "step"]
    assert len(times) == 4 and min(times) > 0
    held_out = [run for run in report["runs"] if run["kind"] == "held out"]
    assert [run["weight"] for run in held_out] == [0.3, 1.0]
    assert all(0 < run[name] < 1 for run in held_out for name in ("ndcg", "popularity"))


@pytest.mark.slow
def test_the_command_of_the_note_makes_its_files(tmp_path, monkeypatch):
    monkeypatch.setattr(corpora, "load", lambda name, **_: word_embeddings_test._load(name))
    monkeypatch.setattr(datasets, "ml_100k_ratings", ratings_test._ratings)
    monkeypatch.setattr(ratings, "_BATCH_SIZE", 8)
    monkeypatch.chdir(tmp_path)
    wheel = tmp_path / "gensim.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in similarity._FILES.values():
            archive.writestr(f"gensim/test/test_data/{name}", PAIRS)
    arguments = ["--gensim-wheel", str(wheel), "--outputs", "factored", "softmax"]
    arguments += ["--batch-size", "16", "--seconds", "0.3", "--points", "2", "--seeds", "1"]
    of_steps = ["--num-classes", "40", "--dim", "8", "--batch-size", "4", "--seconds", "0.1"]
    of_ratings = ["--epochs", "1", "--num-items", "24", "--steps", "2", "--seeds", "1"]
    __main__.main(arguments, of_steps, of_ratings)
    found = {path.name: path for path in tmp_path.glob("benchmark-results/**/*.json")}
    assert {"whole_model.json", "ratings.json", "similarity.json"} <= set(found)
    rows = json.loads(found["whole_model.json"].read_text())["rows"]
    cases = [(row["context"], row["method"]) for row in rows]
    assert cases == [(context, method) for context in (0, 4) for method in __main__.STEPS[-3:]]
    assert all(row["cpu_ms"] > 0 for row in rows)
    runs = json.loads(found["similarity.json"].read_text())["runs"]
    assert [run["output"] for run in runs] == ["factored", "softmax"]
    for run in runs:
        assert run["pairs"] == {"simlex999": 4, "wordsim353": 4}
        assert len(run["points"]) == 2 and -1 <= run["points"][-1]["simlex999"] <= 1
