"""The comparison of a language model's heads: its table, and small runs."""

import importlib.util
import json

import numpy as np
import pytest

from lab.language_models import heads
from lab.language_models.case import Case


def test_the_table_shows_median_and_range_of_the_runs():
    runs = [
        {"method": method, "step_mb": mb, "peak_mb": 2 * mb, "cpu_ms": 1000 * seconds}
        for method, mb, seconds in [("x", 10, 1), ("y", 7, 4), ("x", 30, 4), ("x", 20, 2)]
    ]
    *_, x, y = heads.table(runs, Case(batch_size=2, length=4)).splitlines()
    assert x == "| x | 20 (10 to 30) | 40 (20 to 60) | 2.00 (1.00 to 4.00) | 4 (2 to 8) |"
    assert y == "| y | 7 | 14 | 4.00 | 2 |"


def test_tokens_are_ids_by_decreasing_frequency():
    tokens = Case(vocabulary_size=50).tokens()
    assert tokens.shape == (64, 129) and tokens.min() == 0 and tokens.max() == 49
    counts = np.bincount(tokens.ravel())
    assert counts[0] > 4 * counts[5:10].mean() > 4 * counts[20:].mean()


@pytest.mark.slow
def test_all_methods_train_models_of_equal_size(tmp_path):
    missing = [name for name in ("keras_hub", "torch") if not importlib.util.find_spec(name)]
    if missing:
        pytest.skip(f"not installed: {missing}")
    path = tmp_path / "heads.json"
    sizes = ["--vocabulary-size", "300", "--dim", "8", "--length", "5", "--num-sampled", "20"]
    steps = ["--steps", "2", "--runs", "1", "--batch-size", "2", "--chunk", "4"]
    report = heads.main([*sizes, *steps, "--json", str(path), "--methods", *heads.METHODS])
    assert json.loads(path.read_text()) == report
    assert [run["method"] for run in report["runs"]] == list(heads.METHODS)
    assert len({run["weights"] for run in report["runs"]}) == 1
    assert all(run["steps"] == 2 and run["cpu_ms"] > 0 for run in report["runs"])
