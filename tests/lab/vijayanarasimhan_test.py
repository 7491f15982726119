import json

import pytest

from lab.vijayanarasimhan import inference, training

SMALL = ["--sample", "50", "--tasks", "synthetic"]


@pytest.mark.slow
def test_methods_are_compared_at_equal_steps_and_kept(tmp_path):
    arguments = [*SMALL, "--steps", "32", "--out", str(tmp_path)]
    report = training.main(arguments)
    runs = report["runs"]
    assert [run["method"] for run in runs] == training.COMPARED
    assert all(run["trained_steps"] == 32 and 0 <= run["p1"] <= 100 for run in runs)
    assert json.loads((tmp_path / "training.json").read_text())["runs"] == runs
    assert training.main(arguments)["runs"] == runs  # with their times: not repeated
    lines = training.table(runs).splitlines()
    assert len(lines) == 2 + len(runs) and "WTA softmax" in lines[2]


@pytest.mark.slow
def test_the_recall_grows_with_the_number_of_tables(tmp_path):
    arguments = ["--task", "synthetic", "--seconds", "1", "--tables", "2", "50"]
    arguments += ["--candidates", "100", "--queries", "40", "--out", str(tmp_path)]
    report = inference.main(arguments)
    exact, few, many = (report["rows"][place] for place in (1, 2, 4))
    assert exact["search"] == "BruteForceIndex" and exact["recall"] == 1
    assert few["tables"] == 2 and many["tables"] == 50
    assert 0 <= few["recall"] < many["recall"] <= 1
    assert json.loads((tmp_path / "inference.json").read_text())["rows"] == report["rows"]
    assert (tmp_path / "inference.png").stat().st_size > 1000
