import json

import keras
import pytest

from benchmarks import demo
from benchmarks.harness import tasks
from benchmarks.harness.training import TrainingRun
from tests.examples.tiny_dataset import TinyDataset, encode
from tests.slow import slow_but
from tf_largeout import datasets
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "stock", slow_but([(("tf_nn_nce",),)], [(("tf_nn_nce",),), (demo.STOCK,)])
)
def test_methods_train_for_the_same_time_and_the_saved_model_answers(
    stock, data, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(demo, "STOCK", stock)
    (tmp_path / "tf_nn_nce.json").write_text('{"points": [{"seconds": 99}]}')  # an earlier run
    report = demo.main([data.test_text(3), "--seconds", "0.05", "--out", str(tmp_path)])
    logs = json.loads((tmp_path / "figures.json").read_text())["methods"]
    assert logs == report["methods"] and list(logs) == [*stock, demo.OURS]
    assert {log["points"][-1]["seconds"] for log in logs.values()} == {0.05}
    rate = keras.saving.load_model(tmp_path / "model.keras").optimizer.learning_rate
    assert 0 <= float(rate) < 1e-2  # it falls with time
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    said = capsys.readouterr().out
    assert "all figures depend on the machine" in said
    query, *answers = said.splitlines()[-6:]
    assert query == data.test_text(3) and all("Village" in line for line in answers)


def test_methods_share_their_settings_where_possible(data, tmp_path):
    settings = [run.settings for run in demo._runs(tmp_path, 62)]
    for name in ("batch_size", "num_sampled", "learning_rate", "anneal", "dim"):
        assert len({getattr(each, name) for each in settings}) == 1
    *_, by_hand, ours = settings
    assert (by_hand.optimizer, by_hand.steps_per_execution) == ("row_sparse_adam", 16)
    assert (ours.optimizer, ours.steps_per_execution) == ("lazy_adam", 16)


def test_p1_at_equal_examples_is_interpolated():
    examples = {"tf_nn_sampled_softmax": 90, "tf_nn_nce": 100, "stock_tuned": 250}
    logs = {
        method: {"title": method, "points": [{"examples": seen, "p1": 7.0}]}
        for method, seen in examples.items()
    }
    points = [(100, 10.0), (200, 30.0), (300, 50.0)]
    logs[demo.OURS] = {"points": [{"examples": seen, "p1": p1} for seen, p1 in points]}
    assert demo.at_equal_examples(logs) == [
        "After 100 examples: P@1 7.0 of tf_nn_nce, 10.0 of ours.",
        "After 250 examples: P@1 7.0 of stock_tuned, 40.0 of ours.",
    ]
