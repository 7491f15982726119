"""The table of the fastest indexes."""

import json

from lab.retrieval import fastest


def _row(method, setting, recall, cpu_ms, **other):
    row = {"method": method, "setting": setting, "recall": recall, "cpu_ms": cpu_ms}
    return {**row, "k": 10, "batch": 1, "build_cpu_s": 2.0, "mib": 3.0, **other}


def test_the_fastest_setting_of_enough_recall_is_shown(tmp_path, capsys):
    rows = [
        _row("lists", "4 lists", 0.8, 0.1, mib=1.0),
        _row("lists", "8 lists", 0.96, 0.3),
        _row("lists", "9 lists", 0.97, 0.4),
        _row("lists", "8 lists", 1.0, 0.01, batch=64),
        _row("exact", "exact", 1.0, 0.2),
        _row("exact", "50 excluded", 1.0, 0.1),
        _row("build(recall=0.9)", "A", 0.999, 0.1),
        _row("build(recall=0.95)", "B", 0.945, 0.5),
    ]
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"rows": rows}))
    fastest.main([str(path), "--recalls", "0.95", "0.99"])
    lines = [line for line in capsys.readouterr().out.splitlines() if ", 0.9" in line]
    assert lines == [
        "| exact, 0.95 | exact | 1.000 | 0.20 | 2 | 3 |",
        "| lists, 0.95 | 8 lists | 0.960 | 0.30 | 2 | 1 |",
        "| build(recall=0.95), 0.95 | B | 0.945 | 0.50 | 2 | 3 |",
        "| exact, 0.99 | exact | 1.000 | 0.20 | 2 | 3 |",
    ]
