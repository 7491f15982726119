import json

import pytest

from benchmarks import table
from benchmarks.methods.method_table import METHODS


def log(method, p1, psp1=None, task="names", **more):
    """Returns a log with a point every 10 s, 100 examples per second, and the given P@1."""
    points = [
        {
            "seconds": 10.0 * i,
            "steps": 4 * i,
            "examples": 1000 * i,
            "p1": p,
            "p3": 9.0,
            "p5": 5.0,
        }
        for i, p in enumerate(p1, start=1)
    ]
    if psp1 is not None:
        points[-1] |= {"psp1": psp1, "psp3": 2.0, "psp5": 1.0}
    settings = {"learning_rate": 7e-3}
    return {
        "title": METHODS[method].title,
        "method": method,
        "task": task,
        "on_validation": False,
        "settings": settings,
        "points": points,
        "peak_mb": 1234.4,
        **more,
    }


@pytest.fixture
def folder(tmp_path):
    """The directory of a race: logs, and a report that repeats one of them."""
    logs = [
        log("softmax", [10, 20, 40], num_examples=5000),
        log("uniform", [30, 10], psp1=3.25, num_examples=5000),
        log("inverted_file", [36, 50], psp1=8.0, num_examples=5000),
    ]
    for each in logs:
        (tmp_path / f"{each['method']}.json").write_text(json.dumps(each))
    report = {"methods": {"uniform": logs[1]}, "machine": {}}
    (tmp_path / "race.json").write_text(json.dumps(report))
    return tmp_path


def test_rows_are_the_last_points_sorted_by_precision(folder):
    rows = table.comparison(table.read_logs([folder]), "softmax")
    assert [row["method"] for row in rows] == ["inverted_file", "softmax", "uniform"]
    assert [row["p1"] for row in rows] == [50, 40, 10]
    assert [row["best_p1"] for row in rows] == [50, 40, 30]
    assert [row["psp1"] for row in rows] == [8.0, None, 3.25]
    assert [row["seconds_an_epoch"] for row in rows] == [50.0] * 3
    # 50 % and 90 % of 40 are 20 and 36; times are interpolated
    assert [row["seconds_to_50"] for row in rows] == pytest.approx([10 * 20 / 36, 20, 20 / 3])
    assert [row["seconds_to_90"] for row in rows] == [10, 28, None]


def test_logs_without_the_number_of_examples_take_it_from_the_others(folder):
    old = log("softmax", [10, 20, 40])
    (folder / "softmax.json").write_text(json.dumps(old))
    rows = table.comparison(table.read_logs([folder]), "softmax")
    assert [row["seconds_an_epoch"] for row in rows] == [50.0] * 3
    (row,) = table.comparison([old], "softmax")
    assert row["seconds_an_epoch"] is None


def test_a_report_can_be_given_as_a_path(folder):
    assert [log["method"] for log in table.read_logs([folder / "race.json"])] == ["uniform"]


def test_logs_of_one_method_are_distinguished_by_folder(folder):
    (folder / "other").mkdir()
    (folder / "other" / "uniform.json").write_text(json.dumps(log("uniform", [12])))
    titles = [log["title"] for log in table.read_logs([folder, folder / "other"])]
    assert len(titles) == len(set(titles)) == 4
    assert titles[-1] == "tf_largeout, uniform negatives (other)"
    logs = table.read_logs([folder, folder / "other"])
    with pytest.raises(ValueError, match=r"which matches 2 of the logs"):
        table.comparison(logs, "uniform")
    assert table.comparison(logs, titles[-1])[-2]["seconds_to_50"] == 5.0


def test_logs_that_cannot_be_compared_are_rejected(folder, capsys):
    with pytest.raises(
        ValueError, match=r"exactly one log. Received: 'ours', which matches 0 of the logs"
    ):
        table.comparison(table.read_logs([folder]), "ours")
    (folder / "frequency.json").write_text(
        json.dumps(log("frequency", [1], on_validation=True))
    )
    with pytest.raises(ValueError, match=r"not of one task and split: names, names \(valid"):
        table.read_logs([folder])
    with pytest.raises(SystemExit):
        table.main(["--logs", str(folder / "none")])
    assert "none cannot be read as JSON" in capsys.readouterr().err


@pytest.mark.slow
def test_command_line_writes_figures_table_and_picture(folder):
    names = [name for name in METHODS if name not in ("softmax", "uniform", "inverted_file")]
    for i, name in enumerate(names):
        (folder / f"{name}.json").write_text(json.dumps(log(name, [1 + i, 2 + i])))
    out = folder / "results"
    files = {kind: str(out / f"table.{kind}") for kind in ("json", "markdown", "png")}
    table.main(["--logs", str(folder), *(a for k, v in files.items() for a in (f"--{k}", v))])
    report = json.loads((out / "table.json").read_text())
    assert report["task"] == "names" and len(report["rows"]) == len(METHODS)
    assert (out / "table.markdown").exists()
    assert (out / "table.png").stat().st_size > 20_000
