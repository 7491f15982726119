import json

import numpy as np
import pytest

from lab.speed import exact_softmax, exact_softmax_case


@pytest.mark.slow
def test_all_steps_are_measured_and_written(tmp_path):
    path = tmp_path / "exact.json"
    arguments = ["--task", "synthetic", "--seconds", "0.5", "--batch-size", "16"]
    report = exact_softmax.main(
        [*arguments, "--cores", "1", "--rounds", "1", "--json", str(path)]
    )
    assert json.loads(path.read_text()) == report
    (run,) = report["runs"]
    assert [row["variant"] for row in run["rows"]] == list(exact_softmax_case.VARIANTS)
    assert all(row["ms"] > 0 for row in run["rows"])
    assert report["problem"]["num_classes"] == 2000


def test_the_limit_is_the_time_of_products_and_bytes():
    problem = {"num_classes": 1000, "dim": 100}
    limits = {"gb_per_s": 1.0, "float32": 8.0, "bfloat16": 80.0}
    found = exact_softmax.limits_ms(problem, 10, limits)
    assert found == pytest.approx({"float32": 1 + 4, "bfloat16": 0.1 + 4})


def test_tiles_are_skipped_up_to_the_limit_of_the_least_certain_example():
    logits = np.zeros([128, 3 * 96])
    logits[::2, :96] = 30.0  # even rows favour the first tile, odd rows no tile
    assert exact_softmax_case.shares_left_out(logits, 0.01) == pytest.approx([0, 1 / 3])
    assert exact_softmax_case.shares_left_out(logits, 0.34) == pytest.approx([1 / 3, 1 / 2])
