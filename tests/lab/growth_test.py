import json

import numpy as np
import pytest

from benchmarks.harness import tasks
from lab.growing_classes import growth


@pytest.mark.slow
def test_a_grown_model_is_compared_with_one_of_all_classes_and_a_new_one(tmp_path):
    arguments = "--task synthetic --first-classes 1800 --steps 64 --added-steps 32 "
    arguments += "--points 2 --sample 200 "
    arguments += f"--json {tmp_path}/g.json --png {tmp_path}/g.png"
    growth.main(arguments.split())
    report = json.loads((tmp_path / "g.json").read_text())
    start, grown, new = [run["points"] for run in report["runs"]]
    assert [point["steps"] for point in start] == [32, 64, 80, 96]
    assert [point["steps"] for point in grown] == [32, 64, 80, 96]
    assert [point["steps"] for point in new] == [80, 96]
    assert grown[1]["p1_new"] == 0 < grown[-1]["p1_new"]
    assert min(start[-2]["p1"], grown[-2]["p1"]) > new[-2]["p1"]
    assert (tmp_path / "g.png").stat().st_size > 10_000


def test_the_first_classes_keep_their_examples_and_counts():
    task = growth.shuffled_classes(tasks.load("synthetic", 64), seed=1)
    first = growth.first_classes(task, 500, 32)
    labels = np.concatenate([y for _, y in first.train.take(40).as_numpy_iterator()])
    assert labels.size == 40 * 32 and labels.max() < 500
    before = tasks.load("synthetic", 64)
    np.testing.assert_array_equal(np.sort(task.label_counts), np.sort(before.label_counts))
    np.testing.assert_array_equal(
        task.label_counts[task.test[1]], before.label_counts[before.test[1]]
    )
    assert first.num_examples == first.label_counts.sum() < task.num_examples


def test_tasks_that_cannot_grow_are_rejected():
    with pytest.raises(ValueError, match="one label per example"):
        growth.shuffled_classes(tasks.load("synthetic_multilabel", 64), 0)
    with pytest.raises(ValueError, match="from 1 to 1999. Received: 2000"):
        growth.first_classes(tasks.load("synthetic", 64), 2000, 64)
