import dataclasses
import json
import math

import numpy as np
import pytest

from lab import corpora
from lab.negatives import starts
from lab.shared import language_model, language_model_case
from lab.shared.factored_heads import FACTORED_HEADS
from lab.shared.language_model_case import FULL, Setting
from tests.lab import brown
from tf_largeout import samplers


@pytest.fixture(autouse=True)
def text(tmp_path, monkeypatch):
    brown.provide(tmp_path, monkeypatch)


@pytest.mark.slow
def test_finished_runs_are_saved_plotted_and_not_repeated(tmp_path):
    arguments = ["--samplers", FULL, "uniform", "--num-sampled", "8", "--epochs", "1"]
    arguments += [*brown.SMALL, "--out", str(tmp_path / "out")]
    report = language_model.main(arguments)
    assert [(run["sampler"], run["num_sampled"]) for run in report["runs"]] == [
        (FULL, None),
        ("uniform", 8),
    ]
    written = json.loads((tmp_path / "out" / "language_model.json").read_text())
    assert written["runs"] == report["runs"]
    assert (tmp_path / "out" / "language_model.png").stat().st_size > 1000
    num_batches = len(language_model_case.load(Setting(batch_size=8, length=6)).train)
    for run in report["runs"]:
        assert run["num_classes"] == 12 and run["steps"] == num_batches
        assert 1 < run["test_perplexity"] < 20 and 1 < run["validation_perplexity"] < 20
    assert language_model.main(arguments)["runs"] == report["runs"]  # with their times


def test_a_series_combines_samplers_numbers_and_seeds():
    options = language_model._parser().parse_args(
        [
            "--samplers",
            FULL,
            "uniform",
            "--num-sampled",
            "4",
            "8",
            "--seeds",
            "0",
            "1",
            "--tied",
        ]
    )
    settings = [*language_model.settings(options)]
    runs = [(one.seed, one.sampler, one.num_sampled) for one in settings]
    of_a_seed = [(FULL, None), ("uniform", 4), ("uniform", 8)]
    assert runs == [(seed, *run) for seed in (0, 1) for run in of_a_seed]
    assert all(
        one == dataclasses.replace(Setting(), tied=True, **_own(one)) for one in settings
    )


def _own(setting):
    names = ("sampler", "num_sampled", "seed")
    return {name: getattr(setting, name) for name in names}


@pytest.mark.slow
def test_a_tree_trains_the_absolute_softmax_for_part_of_an_epoch(tmp_path):
    setting = Setting(sampler="kernel_tree", num_sampled=4, absolute=True, epochs=0.5)
    setting = dataclasses.replace(
        setting, width=8, length=6, batch_size=4, vocabulary=12, sample=4
    )
    run = language_model_case.train(setting)
    steps_of_an_epoch = len(language_model_case.load(setting).train)
    assert run["steps"] == round(0.5 * steps_of_an_epoch) > 0
    assert run["title"] == "kernel_tree, absolute softmax"
    assert 1 < run["test_perplexity"] < 20


@pytest.mark.slow
def test_training_lasts_for_the_given_seconds():
    run = language_model_case.train(
        Setting(
            sampler="frequency", num_sampled=4, seconds=1.0, width=8, length=6, vocabulary=12
        )
    )
    assert 1.0 <= run["training_seconds"] < 60 and run["steps"] > 20
    assert run["test_perplexity"] < run["unigram_test_perplexity"]


@pytest.mark.slow
@pytest.mark.parametrize("name", FACTORED_HEADS)
def test_a_factored_head_trains_without_negatives(name):
    head = FACTORED_HEADS[name]
    setting = Setting(sampler=name, class_rate=head.class_rate / 10, epochs=2)
    run = language_model_case.train(
        dataclasses.replace(setting, width=8, length=6, batch_size=4, vocabulary=12)
    )
    assert 0 < run["test_p1"] <= run["test_top10"] <= 100
    assert ("test_perplexity" in run) == head.has_probabilities
    assert 1 < run.get("test_perplexity", 2) < 20


@pytest.mark.slow
def test_tied_models_have_one_table():
    setting = Setting(num_sampled=4, width=8, tied=True, vocabulary=12)
    model = language_model_case.build_model(language_model_case.load(setting), setting)
    assert model.layers[-1].embeddings is model.layers[0].embeddings


def test_the_unigram_perplexity_adds_one_to_the_counts():
    data = corpora.load("brown", vocabulary_size=12)
    counts = np.bincount(data.train_tokens, minlength=12) + 1
    losses = [-math.log(counts[token] / counts.sum()) for token in data.test_tokens[1:]]
    expected = math.exp(sum(losses) / len(losses))
    assert language_model_case.unigram_perplexity(data) == pytest.approx(expected)


def test_a_search_uses_the_given_tail_and_start():
    setting = Setting(sampler="inverted_file", num_sampled=24, tail="frequency", start_step=3)
    setting = dataclasses.replace(setting, width=8, vocabulary=32)
    model = language_model_case.build_model(language_model_case.load(setting), setting)
    sampler = model.layers[-1].sampler
    assert isinstance(sampler.tail, samplers.UnigramSampler) and sampler.start.step == 3


@pytest.mark.slow
def test_starts_of_a_search_are_compared_on_a_text(monkeypatch):
    monkeypatch.setattr(starts, "_NEGATIVES", 24)
    run = starts.train("brown", "2", 1.0, seed=0, sample=4, on_validation=True)
    assert run["started_at"] == 2 and run["steps"] > 2 and 0 <= run["p1"] <= 100
