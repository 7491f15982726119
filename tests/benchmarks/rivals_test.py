"""Models of other libraries on small synthetic tasks; missing libraries are skipped."""

import importlib.util
import math

import numpy as np
import pytest

from benchmarks.harness import tasks
from benchmarks.harness.step_case import dense_task
from benchmarks.rivals import RIVALS
from benchmarks.rivals.examples import Examples, TfIdf, write_svmlight
from benchmarks.rivals.rival_run import RivalRun
from tf_largeout.datasets.ragged import Ragged

FEATURES = np.array([[3, 5, 3, 0], [5, 1, 0, 0], [5, 2, 2, 2]], np.int32)
LABELS = np.array([[4, -1], [0, 2], [2, -1]])


def _task(num_classes=40, **options):
    return tasks.synthetic(num_classes=num_classes, **options)("made", 64, 0, False)


def _trained(name, task, folder, **settings):
    model = RIVALS[name].model(RIVALS[name].settings_for("made", **settings), folder)
    model.prepare(Examples.of_task(task))
    model.train()
    assert model.save().exists()
    return model


@pytest.fixture(params=RIVALS)
def name(request):
    """A rival whose library is installed."""
    package = RIVALS[request.param].model.package
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"the package {package} is not installed: extra `rivals`")
    return request.param


def _settings(name):
    return {"epoch": 200, "lr": 0.2, "dim": 30} if name.startswith("fasttext") else {}


@pytest.mark.slow
def test_a_rival_finds_the_class_by_its_features(name, tmp_path):
    task = _task(examples=3000)
    model = _trained(name, task, tmp_path, **_settings(name))
    features, labels = task.test
    best = model.top_k(features, 5)
    assert best.dtype == np.int64 and best.shape == (len(labels), 5)
    assert best.min() >= -1 and best.max() < 40
    assert np.mean(best[:, 0] == labels) > 0.6
    # a query gets the same answer alone (the last classes of fastText may tie)
    assert model.top_k(features[:1], 3)[0, 0] == best[0, 0]


@pytest.mark.slow
def test_a_rival_learns_several_labels(name, tmp_path):
    task = _task(examples=3000, max_labels=3)
    model = _trained(name, task, tmp_path, **_settings(name))
    features, labels = task.test
    best = model.top_k(features, 5)
    popular = np.argsort(-task.label_counts)[:1]
    hits = (best[:, :1, None] == labels[:, None, :]).any(-1).mean()
    assert hits > 1.3 * (labels == popular).any(-1).mean()


@pytest.mark.slow
def test_an_example_of_unknown_features_gets_an_answer(name, tmp_path):
    model = _trained(name, _task(examples=500), tmp_path)
    assert model.top_k(np.zeros([2, 4], np.int32), 5).shape == (2, 5)


@pytest.mark.slow
def test_a_run_writes_a_log_with_one_point_and_its_cost(name, tmp_path):
    run = RivalRun("synthetic_multilabel", name, str(tmp_path), sample=200)
    run.train()
    log = run.read_log()
    (point,) = log["points"]
    assert point["seconds"] == point["wall_seconds"] > 0 and point["cpu_seconds"] > 0
    assert {f"{kind}{k}" for kind in ("p", "psp") for k in (1, 3, 5)} <= set(point)
    assert log["model_mb"] > 0.1 and log["peak_mb"] > log["grown_mb"]
    assert set(log["query_ms"]) == {"1", "64"} and min(log["query_ms"].values()) > 0
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.json"]
    assert run.in_own_process() == log  # the log exists, so nothing is trained
    with pytest.raises(ValueError, match=r"another run: settings differ"):
        RivalRun("synthetic_multilabel", name, str(tmp_path), overrides={"a": 1}).read_log()


def test_a_missing_library_is_reported_before_training(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ImportError, match=r'omikuji is not .* pip install "tf_largeout\[rivals'
    ):
        RivalRun("synthetic", "omikuji", str(tmp_path))


def test_weights_are_normalised_tf_idf():
    tf_idf = TfIdf(Ragged.from_padded(FEATURES, 0), 8)
    ids, weights = tf_idf.weigh(Ragged.from_padded(np.array([[3, 5, 3, 2], [7, 0, 0, 0]]), 0))
    assert ids.row(0).tolist() == [2, 3, 5] and ids.row(1).tolist() == [7]
    raw = [math.log(3), 2 * math.log(3), 0.0]  # feature 5 is in each example, 7 in none
    expected = [value / math.hypot(*raw) for value in raw]
    np.testing.assert_allclose(weights, [*expected, 0.0], rtol=1e-6)


def test_the_file_of_the_trees_contains_labels_and_weights(tmp_path):
    features, labels = Ragged.from_padded(FEATURES, 0), Ragged.from_padded(LABELS, -1)
    examples = Examples(features, labels, num_features=8, num_classes=6)
    write_svmlight(tmp_path / "file", examples, TfIdf(features, 8))
    header, *rows = (tmp_path / "file").read_text().splitlines()
    assert header == "3 8 6"
    assert rows == ["4 3:1 5:0", "0,2 1:1 5:0", "2 2:1 5:0"]


def test_examples_are_one_epoch_of_the_task():
    task = _task(examples=640, max_labels=3)
    examples = Examples.of_task(task)
    assert len(examples.features) == len(examples.labels) == task.num_examples == 576
    counts = np.bincount(examples.labels.values, minlength=40)
    np.testing.assert_array_equal(counts, task.label_counts)
    assert examples.features.values.min() > 0


def test_a_task_of_dense_vectors_is_rejected():
    task = dense_task(num_classes=40, dim=4, batch_size=64)
    with pytest.raises(ValueError, match="the examples of this task are dense vectors"):
        Examples.of_task(task)
