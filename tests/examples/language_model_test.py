"""The example trains on a small text, saves, loads, and continues the text."""

import importlib.util
import pathlib

import numpy as np
import pytest

import tf_largeout as tflo
from lab import corpora
from lab.corpora.text import TokenCorpus, token_dataset
from tests.slow import slow_but

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "language_model.py"
WORDS = [*"abcdefgh"]


def _example():
    spec = importlib.util.spec_from_file_location("language_model", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


def _load(name, vocabulary_size, batch_size, validation_fraction):
    """Returns documents that repeat the letters a to h in order."""
    rng = np.random.default_rng(0)
    tokens = [
        np.arange(start, start + 40, dtype=np.int32) % 8 for start in rng.integers(8, size=60)
    ]
    names = [str(row) for row in range(60)]
    corpus = TokenCorpus.from_documents(tokens, WORDS, names, names, np.arange(60) % 10 == 0)
    return token_dataset(
        name,
        corpus.limited(vocabulary_size or 100),
        10,
        batch_size=batch_size,
        shuffle_seed=0,
        validation_fraction=validation_fraction,
    )


@pytest.mark.parametrize("name", slow_but(["unigram"], ["unigram", "uniform"]))
def test_each_sampler_works_with_the_loss(name):
    example, data = _example(), _load("letters", None, 4, 0.1)
    model = example.build_model(data, example.SAMPLERS[name](data, 4))
    words, labels = next(iter(data.train))
    exact = tflo.losses.SoftmaxLoss()(labels, model(words, training=False))
    sampled = tflo.losses.SampledSoftmaxLoss()(labels, model(words, training=True))
    assert 0 < sampled < exact + 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [["--sampler", "log_uniform", "--tied"], ["--sampler", "none"]]
)
def test_example_trains_saves_and_answers(options, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(corpora, "load", _load)
    example, path = _example(), tmp_path / "trained.keras"
    example.main(
        [
            "a b c",
            "H no such A",
            "--epochs",
            "8",
            "--num-sampled",
            "4",
            "--learning-rate",
            "0.01",
        ]
        + [*options, "--out", str(path)]
    )
    trained = capsys.readouterr().out
    assert "Exact, on the test split" in trained and "perplexity" in trained
    answers = trained.splitlines()[-12:]
    assert answers[0] == "a b c" and answers[1].split()[1] == "d"
    assert answers[6] == "H no such A" and answers[7].split()[1] == "b"
    example.main(["a b c", "H no such A", "--load", str(path)])
    assert capsys.readouterr().out.splitlines() == answers
    with pytest.raises(SystemExit):
        example.main(["--load", str(path), "--vocabulary", "5"])
    assert "Pass the --dataset and --vocabulary of its training" in capsys.readouterr().err
