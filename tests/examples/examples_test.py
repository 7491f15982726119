import dataclasses
import importlib.util
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tf_largeout import datasets
from tf_largeout.benchmarks import demo, tasks, training_run

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


class TinyDataset:
    """A dataset like those of `load`: class `c` has the features `4c + 1 ... 4c + 4`."""

    max_features, vocabulary_size, num_classes, num_train, num_test = 4, 20_001, 5000, 640, 50

    def __init__(self):
        classes = np.random.default_rng(0).integers(50, size=690)
        features = (4 * classes[:, None] + np.arange(1, 5)).astype(np.int32)
        examples = tf.data.Dataset.from_tensor_slices((features, classes))
        self.train, self.test = examples.take(640).batch(64), examples.skip(640).batch(64)
        self.features, self.label_counts = features, np.ones(5000)

    def class_text(self, class_id):
        return f"class {class_id}"

    def test_text(self, index):
        return f"Example number {index}"


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
@pytest.mark.parametrize("name", ["place_names", "linux_callees"])
def test_example_trains_compares_and_answers(name, tmp_path, monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    data = TinyDataset()
    test = (data.features, np.zeros(690))
    task = tasks.Task(5000, 20_001, data.train.repeat(), test, np.ones(5000), 690, data)
    monkeypatch.setattr(datasets, "load", lambda name, **_: data)
    monkeypatch.setattr(tasks, "load", lambda *_: task)
    monkeypatch.setattr(training_run.TrainingRun, "in_own_process", _in_this_process)
    tiny = dataclasses.replace(
        example.DEMO, featurize=lambda data, text: data.features[int(text)][None]
    )
    tiny.main(["3", "--seconds", "0.3", "--out", str(tmp_path)])
    said = capsys.readouterr().out
    assert "tf.nn.nce_loss + Keras Adam" in said and said.count("class ") >= 5
    figures = json.loads((tmp_path / "figures.json").read_text())["methods"]
    assert all(log["points"][-1]["seconds"] == 0.3 for log in figures.values())
    assert (tmp_path / "curves.png").exists() and (tmp_path / "model.keras").exists()


def _in_this_process(run):
    run.train()
    return run.read_log()


def test_a_test_example_is_found_by_its_words():
    data = TinyDataset()
    features, text = demo.find_test_example(data, "NUMBER 7")
    assert text == "Example number 7"
    np.testing.assert_array_equal(features[0], data.features[647])
    assert demo.find_test_example(data, "no such words") == (None, "no such words")
