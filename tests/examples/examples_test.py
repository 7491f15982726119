"""The examples train on a small dataset, save, load, and predict what they have learnt."""

import importlib.util
import pathlib

import keras
import pytest

from benchmarks.harness import tasks
from benchmarks.methods.method_table import METHODS
from lab import corpora
from tests.examples.tiny_dataset import TinyDataset, encode
from tf_largeout import datasets
from tf_largeout.datasets import place_names

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
EACH_EXAMPLE = pytest.mark.parametrize("name", ["place_names", "linux_callees"])


def _example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


@pytest.mark.slow
@EACH_EXAMPLE
def test_example_trains_saves_and_answers(name, tmp_path, monkeypatch, capsys):
    example, path = _example(name), tmp_path / "trained.keras"
    data = TinyDataset(several_labels=name == "linux_callees")
    monkeypatch.setattr(datasets, "load", lambda *_, **__: data)
    monkeypatch.setattr(corpora, "load", lambda *_, **__: data)
    monkeypatch.setattr(place_names, "encode", encode)
    example.main([data.test_text(7), "--epochs", "6", "--out", str(path)])
    trained = capsys.readouterr().out
    assert "Exact, on 5,120" in trained and "precision_at_1" in trained
    question, best, *rest = trained.splitlines()[-6:]
    assert question == data.test_text(7) and len(rest) == 4
    right = [data.test_text(7)]
    if name == "linux_callees":
        right.append(f"Village {int(right[0].split()[1]) + 1}")
    assert best.split(maxsplit=1)[1] in right
    example.main([data.test_text(7), "--load", str(path)])
    assert capsys.readouterr().out.splitlines() == [question, best, *rest]


def test_words_without_a_matching_function_are_reported(capsys):
    example, data = _example("linux_callees"), TinyDataset()
    assert example.find_test_example(data, data.test_text(7).upper()) <= 7
    example.print_callees(None, data, "village no such")
    assert "no function of the test split has all these words" in capsys.readouterr().out


@pytest.mark.slow
@EACH_EXAMPLE
def test_the_benchmarks_train_the_models_of_the_examples(name):
    """Compares layers, loss and optimizer. Benchmarks decay the rate by time, not by steps."""
    data = TinyDataset()
    methods = {"place_names": "recommended", "linux_callees": "several_labels_bigrams"}
    example, method = _example(name), METHODS[methods[name]]
    test = (data.features, data.labels)
    sizes = (data.num_classes, data.vocabulary_size)
    task = tasks.Task(*sizes, data.train, test, data.label_counts, data.num_train)
    settings = method.settings_for(name)
    theirs, ours = example.train(data, epochs=1), method.model(task, settings)
    for one, other in zip(_without_input(ours), _without_input(theirs), strict=True):
        assert _nameless(one) == _nameless(other)
    assert ours.loss.get_config() == theirs.loss.get_config()
    config, expected = (m.optimizer.get_config() | {"name": ""} for m in (ours, theirs))
    schedule = expected.pop("learning_rate")["config"]
    assert config.pop("learning_rate") == pytest.approx(schedule["initial_learning_rate"])
    assert settings.anneal == 1.0 and schedule["end_learning_rate"] == 0.0
    assert config == expected and type(ours.optimizer) is type(theirs.optimizer)
    assert ours.steps_per_execution == theirs.steps_per_execution


def _without_input(model):
    """Returns the layers of a model; a functional one also has a layer for its input."""
    return [one for one in model.layers if not isinstance(one, keras.layers.InputLayer)]


def _nameless(layer):
    """Returns the config without the name, and without what training adds."""
    config = keras.saving.serialize_keras_object(layer)
    own = {**config["config"], "name": None}
    own.pop("loss_ranking", None)
    return {**config, "config": own, "build_config": None}
