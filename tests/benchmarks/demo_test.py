import json
import types

import keras
import numpy as np
import pytest

from tests.examples.tiny_dataset import TinyDataset, encode
from tf_largeout import datasets
from tf_largeout.benchmarks import demo, tasks
from tf_largeout.benchmarks.training_run import TrainingRun
from tf_largeout.datasets import place_names


def _in_this_process(run):
    run.train()
    return run.read_log()


@pytest.fixture
def data(monkeypatch):
    """The demo on a tiny dataset and in this process."""
    data = TinyDataset()
    task = tasks.Task(
        data.num_classes,
        data.vocabulary_size,
        data.train.repeat(),
        (data.features[:100], data.labels[:100]),
        data.label_counts,
        data.num_train,
    )
    monkeypatch.setattr(datasets, "load", lambda *_, **__: data)
    monkeypatch.setattr(place_names, "encode", encode)
    monkeypatch.setattr(tasks, "load", lambda *_: task)
    monkeypatch.setattr(TrainingRun, "in_own_process", _in_this_process)
    return data


def test_four_methods_are_compared_and_the_saved_model_answers(data, tmp_path, capsys):
    (tmp_path / "tf_nn_nce.json").write_text('{"points": [{"seconds": 99}]}')  # an earlier run
    report = demo.main([data.test_text(3), "--seconds", "0.2", "--out", str(tmp_path)])
    logs = json.loads((tmp_path / "figures.json").read_text())["methods"]
    assert logs == report["methods"] and list(logs) == [*demo.STOCK, demo.OURS]
    assert all(log["points"][-1]["seconds"] == 0.2 for log in logs.values())
    titles = [log["title"] for log in logs.values()]
    said = capsys.readouterr().out.splitlines()
    assert all(any(line.startswith(title) for line in said) for title in titles)
    assert len(set(titles)) == 4
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    assert said[-6] == data.test_text(3)
    assert [line.split()[1] for line in said[-5:]] == ["Village"] * 5


def test_what_can_be_shared_is_shared(data, tmp_path):
    runs = list(demo._runs(tmp_path, 62, demo.METHODS[demo.OURS].settings_for(demo.TASK)))
    settings = [run.settings for run in runs]
    for name in ("batch_size", "num_sampled", "learning_rate", "anneal", "dim"):
        assert len({getattr(each, name) for each in settings}) == 1
    by_hand, ours = settings[2:]
    assert (by_hand.optimizer, by_hand.steps_per_execution) == ("row_sparse_adam", 16)
    assert (ours.optimizer, ours.steps_per_execution) == ("lazy_adam", 16)


def test_answers_are_the_classes_with_the_highest_logits(capsys):
    class Output:
        def top_k(self, features, k):
            scores = np.broadcast_to(np.arange(k, 0.0, -1), [len(features), k])
            ids = np.add.outer(10 * np.arange(len(features)), np.arange(k))
            return [types.SimpleNamespace(numpy=lambda a=a: a) for a in (scores, ids)]

    encoder = keras.layers.Lambda(lambda ids: ids * 1.0)
    model = types.SimpleNamespace(layers=[encoder, Output()])
    demo.answer(model, TinyDataset(), ["Paris", "京都市"])
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "Paris" and said[6] == "京都市"
    assert said[1].split() == ["5.00", "Village", "0"]
    assert said[11].split() == ["1.00", "Village", "14"]
