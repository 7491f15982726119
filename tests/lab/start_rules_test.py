import json

import numpy as np
import pytest

from lab.negatives import start_problems, start_rules, start_table


def looks(*sizes):
    return [{"step": 50 * i, "size": size} for i, size in enumerate(sizes)]


def test_the_rule_of_the_sample_size_has_a_latest_step():
    assert start_rules.step_by_size(looks(40, 17, 15, 9), 60_000) == 100
    assert start_rules.step_by_size(looks(40, 17, 16), 60_000) == 900
    assert start_rules.step_by_size(looks(40), 1_000) == 300
    assert start_rules.step_by_size(looks(40), 10**7) == 3_000


def test_the_table_takes_the_nearest_start_and_no_search_after_the_rate_falls():
    runs = [
        {"start": start, "units": 1500, "p1": p1}
        for start, p1 in [(None, 50.0), (300, 52.0), (1000, 56.0)]
    ]
    run = {"problem": "made", "seed": 0, "by_labels": 2500, "by_size": 950, "runs": runs}
    run["costs"] = {"plain": 0.01}
    found = start_table.figures(run, 1500)
    assert found["by labels"] == found["never"] == 50.0
    assert found["by sample size"] == found["1000"] == 56.0
    (line,) = start_table.table([run]).splitlines()[2:]
    assert line == "| made | 1,500 | 15 | 1 | 50.0 | 52.0 | 56.0 | 50.0 | 56.0 | -6.0 |"


def tiny():
    rng = np.random.default_rng(0)
    labels = rng.integers(300, size=4000)
    features = np.stack([labels + 1, labels // 7 + 400], axis=1).astype(np.int32)
    return features, labels, np.arange(4000) % 10 == 0


@pytest.mark.slow
def test_a_run_with_a_search_branches_off_the_run_without_one(tmp_path, monkeypatch):
    monkeypatch.setitem(start_problems.PROBLEMS, "tiny", tiny)
    monkeypatch.setattr(start_rules.threads, "use_one", lambda: None)  # this process has run
    arguments = "--problem tiny --units 60 120 --starts 20 50 --look 20 --seeds 0 1 --long 0"
    arguments += " --num-sampled 64 --dim 8 --batch-size 32 --sample 200"
    files = ["--data", str(tmp_path), "--json", str(tmp_path / "out.json")]
    report = start_rules.main([*arguments.split(), *files])
    assert json.loads((tmp_path / "out.json").read_text())["runs"] == report["runs"]
    first, second = report["runs"]
    assert {one["units"] for one in second["runs"]} == {60}
    expected = {(None, 60), (20, 60), (None, 120), (20, 120), (50, 120)}
    assert expected <= {(one["start"], one["units"]) for one in first["runs"]}
    for one in first["runs"]:
        start = one["start"]
        searched = 0 if start is None else (one["units"] - start) / 1.5
        assert one["steps"] == round((one["units"] if start is None else start) + searched)
        assert 0 <= one["p1"] <= 100
    assert [look["step"] for look in first["looks"]] == [0, 20, 40, 60, 80]
    assert first["looks"][0]["size"] > first["looks"][-1]["size"]
