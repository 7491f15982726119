import json

import pytest

from benchmarks.harness import own_process
from lab.negatives import starts


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setattr(own_process, "call", lambda function, *given: function(*given))


@pytest.mark.slow
def test_each_start_and_time_is_trained_once(tmp_path):
    arguments = (
        "--problem synthetic --starts never rule 5 --seconds 0.5 1 --seeds 0 --sample 100"
    )
    report = starts.main([*arguments.split(), "--out", str(tmp_path)])
    runs = {(run["start"], run["seconds"]): run for run in report["runs"]}
    assert set(runs) == {(s, t) for s in ("never", "rule", "5") for t in (0.5, 1.0)}
    for (start, _), run in runs.items():
        assert run["steps"] > 0 and 0 <= run["p1"] <= 100
        assert run["started_at"] in {"never": [-1], "rule": [-1, 100], "5": [-1, 5]}[start]
    assert runs["5", 1.0]["started_at"] == 5
    written = json.loads((tmp_path / "starts.json").read_text())
    assert written["runs"] == report["runs"]
    assert starts.main([*arguments.split(), "--out", str(tmp_path)])["runs"] == report["runs"]


@pytest.mark.parametrize("text", ["soon", "-1", "1.5"])
def test_a_start_is_a_step_or_a_word(text, capsys):
    with pytest.raises(SystemExit):
        starts.main(["--starts", text])
    assert f"got '{text}'" in capsys.readouterr().err
