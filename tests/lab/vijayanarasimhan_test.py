import json
import pathlib
import types
import zipfile

import numpy as np
import pytest

from benchmarks.harness import own_process
from lab import corpora
from lab.shared import threads
from lab.vijayanarasimhan import __main__, analogies, inference, training
from tests.examples import word_embeddings_test
from tf_largeout.retrieval import LSHIndex

SMALL = ["--sample", "50", "--tasks", "synthetic"]


@pytest.mark.slow
def test_methods_are_compared_at_equal_steps_and_kept(tmp_path):
    arguments = [*SMALL, "--steps", "32", "--out", str(tmp_path)]
    report = training.main(arguments)
    runs = report["runs"]
    assert [run["method"] for run in runs] == training.COMPARED
    assert all(run["trained_steps"] == 32 and 0 <= run["p1"] <= 100 for run in runs)
    assert json.loads((tmp_path / "training.json").read_text())["runs"] == runs
    assert training.main(arguments)["runs"] == runs  # with their times: not repeated
    lines = training.table(runs).splitlines()
    assert len(lines) == 2 + len(runs) and "WTA softmax" in lines[2]


@pytest.mark.slow
def test_core_operations_find_what_the_library_finds_in_all_entries():
    rng = np.random.default_rng(0)
    rows, bias = rng.normal(size=[3000, 32]).astype("float32"), np.zeros(3000, "float32")
    index = LSHIndex(100, "wta", num_tables=10, num_hashes=2, bin_size=16).build(rows, bias)
    tables = index._built().tables
    ours = inference._searching(index._built().rows, tables, 100, 10 * len(rows))
    core = inference.core_search(types.SimpleNamespace(rows=rows, bias=bias), tables, 100)
    for query in rng.normal(size=[20, 1, 32]).astype("float32"):
        np.testing.assert_array_equal(core(query), ours(query))


@pytest.mark.slow
def test_the_recall_grows_with_the_number_of_tables(tmp_path):
    arguments = ["--task", "synthetic", "--seconds", "1", "--tables", "2", "50"]
    arguments += ["--candidates", "100", "--queries", "40", "--out", str(tmp_path)]
    report = inference.main(arguments)
    exact, few, many = (report["rows"][place] for place in (1, 2, 5))
    assert exact["search"] == "BruteForceIndex" and exact["recall"] == 1
    assert few["tables"] == 2 and many["tables"] == 50
    assert 0 <= few["recall"] < many["recall"] <= 1
    assert json.loads((tmp_path / "inference.json").read_text())["rows"] == report["rows"]
    assert (tmp_path / "inference.png").stat().st_size > 1000


def test_the_nearest_other_word_answers_an_analogy(tmp_path):
    wheel = _write_wheel(tmp_path)
    ids = {word: place for place, word in enumerate("king queen red green hot".split())}
    questions, on_grammar, count = analogies.read_questions(wheel, ids)
    np.testing.assert_array_equal(questions, [[0, 1, 2, 3], [2, 3, 0, 1], [0, 2, 1, 3]])
    assert on_grammar.tolist() == [False, False, True] and count == 4
    rows = np.array([[1.0, 0, 1], [1, 1, 1], [-1, 0, 1], [-1, 1, 1], [0, 0, -1]])
    assert analogies.answered(questions, rows).tolist() == [True, True, True]
    rows[[3, 4]] = rows[[4, 3]]
    assert analogies.answered(questions, rows).tolist()[0] is False


def test_examples_are_near_words_and_frequent_words_are_dropped(monkeypatch):
    monkeypatch.setattr(analogies, "_KEPT", 0.01)
    tokens = np.where(np.arange(20_000) % 2, 0, np.arange(20_000) % 50)
    counts = np.bincount(tokens, minlength=50)
    x, y = analogies.examples(tokens, counts, 5000, seed=0)
    assert x.shape == (5000, 1) and y.shape == (5000,)
    share = 0.5 * np.sqrt(0.01 / 0.52) / (0.5 * np.sqrt(0.01 / 0.52) + 0.48 * np.sqrt(0.5))
    assert (y == 0).mean() == pytest.approx(share, abs=0.05)
    x, y = analogies.examples(np.arange(10_000), np.ones(10_000), 500, seed=0)
    assert 1 <= np.abs(x[:, 0] - y).min() and np.abs(x[:, 0] - y).max() <= 5


@pytest.mark.slow
def test_the_command_makes_all_files(tmp_path, monkeypatch):
    monkeypatch.setattr(own_process, "call", lambda function, *given: function(*given))
    monkeypatch.setattr(threads, "use_one", lambda: None)
    monkeypatch.setattr(corpora, "load", lambda name, **_: word_embeddings_test._load(name))
    for name, value in {"_KEPT": 1.0, "_FOUND": 4, "_NEGATIVES": 4}.items():
        monkeypatch.setattr(analogies, name, value)
    monkeypatch.chdir(tmp_path)
    sizes = ["--tables", "2", "--candidates", "100", "--queries", "10", "--seconds", "0.1"]
    words = ["--gensim-wheel", str(_write_wheel(tmp_path)), "--seconds", "0.1"]
    __main__.main(
        [*words, "--batch-size", "16", "--examples", "2000"],
        of_inference=["--task", "synthetic", *sizes],
        of_training=[*SMALL, "--steps", "16", "--seeds", "0"],
    )
    names = [*__main__.INFERENCE, *__main__.TRAINING, "analogies"]
    folder = pathlib.Path("benchmark-results/vijayanarasimhan")
    for name in names:
        report = json.loads((folder / f"{name}.json").read_text())
        assert report["rows" if "inference" in name else "runs"]
    runs = json.loads((folder / "analogies.json").read_text())["runs"]
    assert [run["output"] for run in runs] == list(analogies.OUTPUTS)
    assert all(run["questions"] == 3 and 0 <= run["analogies"] <= 100 for run in runs)
    assert all((folder / f"{name}.png").stat().st_size > 1000 for name in __main__.INFERENCE)


def _write_wheel(folder):
    """Writes four analogies, and pairs of words, in the place of those of gensim's wheel."""
    path, pairs = folder / "gensim.whl", "red\tgreen\t9\nred\tlake\t1\nlake\triver\t8\n"
    questions = ": family\nking queen red green\nred green king queen\n: gram1\n"
    questions += "king red queen green\nking red queen unknown\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(analogies._QUESTIONS, questions)
        for name in ("simlex999.txt", "wordsim353.tsv"):
            archive.writestr(f"gensim/test/test_data/{name}", pairs)
    return path
