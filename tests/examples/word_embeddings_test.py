"""The example trains each output layer, saves, loads, and finds similar words."""

import importlib.util
import pathlib

import numpy as np
import pytest

from lab import corpora
from lab.corpora.text import TokenCorpus, token_dataset

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "word_embeddings.py"
# Pairs of similar words. The text repeats the pairs in this order, with either word of each.
WORDS = "red green seven nine king queen river lake hot cold up down day night and or".split()


def _example():
    spec = importlib.util.spec_from_file_location("word_embeddings", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


def _load(name):
    """Returns documents that repeat the eight pairs, with a random word of each."""
    rng = np.random.default_rng(0)
    turns = [np.arange(start, start + 40) % 8 for start in rng.integers(8, size=100)]
    tokens = [(2 * turn + rng.integers(2, size=40)).astype(np.int32) for turn in turns]
    names = [str(row) for row in range(100)]
    corpus = TokenCorpus.from_documents(
        tokens, WORDS, names, names, np.arange(100) % 10 == 0
    ).limited(100)
    return token_dataset(
        name, corpus, 10, batch_size=None, shuffle_seed=0, validation_fraction=0.0
    )


def test_windows_are_the_neighbours_of_the_word_between_them():
    neighbours, middle = _example().windows(np.arange(100, 110), 50)
    np.testing.assert_array_equal(neighbours - middle[:, None], [[-2, -1, 1, 2]] * 50)
    assert set(middle) == set(range(102, 108))


@pytest.mark.slow
@pytest.mark.parametrize("output", ["factored", "sampled", "hierarchical", "softmax"])
def test_example_trains_saves_and_finds_similar_words(output, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(corpora, "load", _load)
    example, path = _example(), tmp_path / "trained.keras"
    monkeypatch.setattr(example, "NEGATIVES", 4)
    words = ["red", "lake", "sea"]
    sizes = ["--steps", "150", "--batch-size", "32"]
    example.main([*words, "--output", output, *sizes, "--out", str(path)])
    trained = capsys.readouterr().out
    assert f"{output}: 150 steps in " in trained and "recall_at_10" in trained
    answers = trained.splitlines()[-3:]
    assert answers[0].startswith("red: green ") and answers[1].startswith("lake: river ")
    assert answers[2] == "sea: not among the 20,000 most frequent words."
    example.main([*words, "--load", str(path)])
    assert capsys.readouterr().out.splitlines() == answers
