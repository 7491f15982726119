import json
import time

import keras
import numpy as np
import pytest

from tests.examples.tiny_dataset import TinyDataset, encode
from tf_largeout import datasets
from tf_largeout.benchmarks import demo
from tf_largeout.benchmarks.harness import demo_estimate, own_process, tasks
from tf_largeout.benchmarks.harness.training_run import TrainingRun
from tf_largeout.datasets import place_names

_SETTINGS = demo.METHODS[demo.OURS].settings_for(demo.TASK)
_EPOCHS = 13  # of 1,280 examples: 2.03 executions of 16 steps of 512
_STEPS = 3 * 16


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
    monkeypatch.setattr(demo_estimate, "_EXECUTIONS", 2)
    monkeypatch.setattr(own_process, "call", lambda function, *arguments: function(*arguments))
    return data


@pytest.fixture
def speed(monkeypatch):
    """Replaces the measured speed of the machine."""
    speed = demo_estimate.Speed(overhead=10.0, step=0.5)
    monkeypatch.setattr(demo_estimate, "measure", lambda *_, tested: speed)
    return speed


@pytest.mark.slow  # `make demo` runs the same code
def test_four_methods_are_compared_and_the_saved_model_answers(data, speed, tmp_path, capsys):
    (tmp_path / "tf_nn_nce.json").write_text('{"points": [{"seconds": 99}]}')  # an earlier run
    report = demo.main([data.test_text(3), "--epochs", str(_EPOCHS), "--out", str(tmp_path)])
    logs = json.loads((tmp_path / "figures.json").read_text())["methods"]
    assert logs == report["methods"] and list(logs) == [*demo.STOCK, demo.OURS]
    *stock, ours = (log["points"] for log in logs.values())
    assert [point["steps"] for point in ours] == [32, _STEPS]
    assert 0 < ours[0]["seconds"] < ours[-1]["seconds"] == ours[-1]["wall_seconds"]
    assert [points[-1]["seconds"] for points in stock] == 3 * [ours[-1]["seconds"]]
    rate = keras.saving.load_model(tmp_path / "model.keras").optimizer.learning_rate
    assert float(rate) == pytest.approx(1e-2 * (1 - 32 / _STEPS))  # it falls in each step
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    query, *answers = capsys.readouterr().out.splitlines()[-6:]
    assert query == data.test_text(3) and all("Village" in line for line in answers)


@pytest.mark.slow
def test_speed_is_measured_with_the_start_of_a_process_and_all_tests(data):
    begin = time.perf_counter()
    speed = demo_estimate.measure(demo.TASK, demo.OURS, tested=10**6)
    measured = time.perf_counter() - begin
    assert 0 < speed.step < measured / 96  # 2 x 3 executions of 16 steps
    assert speed.overhead > measured  # a million tests take longer than 500 and the rest
    assert speed.total(50.0) == speed.overhead + 50.0


def test_half_of_the_steps_are_assumed_to_search():
    times = demo_estimate._ExecutionTimes()
    each = demo_estimate._EXECUTIONS
    plain, index, searching = each * [2.0], [90.0], each * [3.0]  # seconds per execution
    times.ends = list(np.cumsum([0.0, *plain, *index, *searching]))
    assert times.per_execution() == pytest.approx(2.5)


@pytest.mark.parametrize(("examples", "steps"), [(1, 32), (16_384, 32), (16_385, 48)])
def test_the_number_of_steps_is_a_multiple_of_an_execution(examples, steps):
    assert demo.whole_executions(examples, _SETTINGS) == steps


def test_methods_share_their_settings_where_possible(data, tmp_path):
    runs = [*demo._stock(tmp_path, 62, _SETTINGS), demo._ours(tmp_path, 4000)]
    settings = [run.settings for run in runs]
    for name in ("batch_size", "num_sampled", "learning_rate", "anneal", "dim"):
        assert len({getattr(each, name) for each in settings}) == 1
    by_hand, ours = settings[2:]
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
