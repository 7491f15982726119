import json

import numpy as np
import pytest

from benchmarks.harness import own_process, tasks
from lab.daghaghi import package_files, step_costs, table_updates, tables, training
from lab.shared.methods import METHODS
from tests.datasets.xmc_files import write_xmc

CLASSES = 40


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A task in the repository's format: the features of class c are 2c and 2c + 1."""
    labels = [i % CLASSES for i in range(240)]
    lines = [f"{c} {2 * c}:1 {2 * c + 1}:1\n" for c in labels]
    file = f"240 80 {CLASSES}\n{''.join(lines)}"
    write_xmc(tmp_path / "downloads" / "manual" / "xmc" / "tiny", file, file)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(own_process, "call", lambda function, *given: function(*given))
    monkeypatch.setattr(training, "use_threads", lambda _: None)  # TensorFlow runs already
    return tmp_path


def arguments(folder, *methods):
    text = "--tasks xmc/tiny@4 --epochs 12 --points 2 --batch-size 16 --learning-rate 0.02"
    text += " --budgets 0.25 --hashes 2 --num-tables 4 --threads 0 --out"
    return [*text.split(), str(folder / "runs"), "--methods", *methods]


@pytest.mark.slow
def test_runs_are_kept_and_shown_as_in_the_paper(tiny, capsys):
    report = training.main(arguments(tiny, "lsh_embedding"))
    (run,) = report["runs"]
    assert (run["budget"], run["num_sampled"], run["tables"]) == (0.25, 10, 4)
    assert run["label_counts"] == [[r, 4] for r in (1, 2, 4, 8, 16, 32, 40)]
    assert [point["steps"] for point in run["curve"]] == list(range(5, 121, 5))
    assert run["curve"][1]["epochs"] == 1
    assert 50 < run["p1"] <= 100 and run["epoch_seconds"] > 0
    assert 0 <= run["health"]["uniform_fill_share"] <= 1
    assert json.loads((tiny / "runs/training.json").read_text())["runs"] == report["runs"]
    assert (tiny / "runs/training_xmc_tiny_4.png").stat().st_size > 1000
    printed = capsys.readouterr().out
    assert "(table 2)" in printed and "(table 4)" not in printed
    assert training.main(arguments(tiny, "lsh_embedding")) == report  # kept


def test_the_setting_of_each_method():
    given = "--budgets 0.1 0.2 --hashes 5 7 --num-tables 50 20 --seeds 0 1"
    runs = training.planned(training._parser().parse_args(given.split()))
    assert len(runs) == 2 * (len(training.ROWS) + 3 + 1 + 1)
    by_label = next(run for run in runs if run["method"] == "lsh_label")
    settings = training.settings_of(by_label, 1000, 4)
    assert settings.num_sampled == 100
    assert settings.search_options["tables"] == {
        "hash": "dwta",
        "num_hashes": 5,
        "num_tables": 50,
    }
    task = tasks.synthetic(num_classes=1000, examples=200)("tiny", 16, 0, False)
    sampler = METHODS["lsh_label"].model(task, settings).layers[-1].sampler
    assert (sampler.query, sampler.form, sampler.tables.num_hashes) == ("label", "walk", 5)
    unused = next(run for run in runs if run["method"] == "frequency")
    assert unused["hashes"] is None and unused["budget"] == 0.1
    assert not any("on_validation" in run for run in runs)
    held_out = training.planned(training._parser().parse_args(["--on-validation"]))
    assert all(run["on_validation"] for run in held_out)


def test_packages_are_written_in_the_format(tmp_path, monkeypatch):
    train = np.array([[9, 5, 9], [5, 0, 0], [7, 0, 0]]), np.array([[0, 1], [0, -1], [1, -1]])
    test = np.array([[7, 8, 0], [5, 0, 0]]), np.array([[0, 2], [1, -1]])
    task = tasks.Task(3, 100, None, test, np.array([2, 1, 0]), 3)
    monkeypatch.setattr(package_files.start_problems, "load", lambda *_, **__: (task, train))
    folder = package_files.main(["--least", "2", "--folder", str(tmp_path)])
    assert (folder / "train.txt").read_text() == "2 3 1\n0 0:1 2:1\n0 0:1\n"
    assert (folder / "test.txt").read_text() == "1 3 1\n0 1:1\n"


def run_of(method, curve, seconds, **settings):
    points = [{"epochs": 1.0 + i, "p1": p1} for i, p1 in enumerate(curve)]
    given = {"budget": 0.1, "tables": None, "hashes": None, **settings}
    figures = {"p1": curve[-1], "p3": 1.0, "p5": 2.0, "epoch_seconds": seconds}
    names = {"task": "t", "method": method, "title": training.ROWS[method]}
    return {**names, **given, **figures, "curve": points}


def test_tables():
    lsh = {"tables": 50, "hashes": 5}
    runs = [
        run_of("softmax", [10, 30, 40], 8.0, budget=None),
        run_of("softmax", [30, 30, 40], 8.0, budget=None),
        run_of("lsh_embedding", [5, 20, 30], 2.0, **lsh),
        run_of("log_uniform", [1, 2, 3], 1.0),
        run_of("lsh_embedding", [5, 20, 33], 1.0, tables=20, hashes=5),
    ]
    head, _, full, hashed, sampled = tables.convergence(runs).splitlines()
    assert "t: epochs to 50 %" in head
    assert full == "| full softmax | 1.00 | 3.00 | 40.0 ± 0.0 | 40.0 at 3 |"
    assert hashed == "| LSH Embedding | 2.00 | fail | 30.0 | 30.0 at 3 |"
    assert sampled == "| sampled softmax (log-uniform) | fail | fail | 3.0 | 3.0 at 3 |"
    assert "| LSH Embedding | 2.0 | 4.0x | 30.0 | 1.0 | 2.0 |" in tables.costs(runs)
    runs.append(run_of("log_uniform", [3, 4, 5], 3.0, budget=0.5))
    shown = tables.all_tables(runs)
    assert "| P@1 | 0.1 | 0.5 |\n| --- | ---: | ---: |\n| t, sampled softmax" in shown
    assert "| t, LSH Embedding | 33.0 | 30.0 |" in shown and "(table 7)" not in shown
    other = {**runs[4], "tables": 50, "hashes": 3}
    assert tables.drawn(runs[:5]) == runs[:4]
    assert tables.drawn([*runs[:4], other])[4]["title"] == "LSH Embedding, K = 3"
    assert "| LSH Embedding |  |  | 30.0 | 30.0 at 3 |" in tables.convergence(runs[2:3])


@pytest.mark.slow
def test_changes_of_table_entries_and_rebuilds_are_measured(tiny, capsys):
    text = "--task xmc/tiny@4 --budgets .25 --at 3 --rebuilds 2 50:1.5 --hashes 1 --tables 4"
    sizes = ["--epochs", "2", "--batch-size", "16", "--out", str(tiny)]
    report = table_updates.main([*text.split(), *sizes])
    changed, often, growing = report["runs"]
    (at,) = changed["changes"]
    assert 0 < at["rows"] <= 1 and 0 <= at["entries"]["1"] <= at["entries"]["50"] <= 1
    assert changed["rebuild_cpu_ms"] > 0 and changed["hash_cpu_ms"] > 0
    assert often["rebuilds"] == (2, 1.0) and growing["rebuilds"] == (50, 1.5)
    assert "| LSH Embedding, 0.25 | 3 | " in capsys.readouterr().out


@pytest.mark.slow
def test_costs_of_steps_are_written(tmp_path):
    text = f"--num-classes 300 600 --full 300 --steps 2 --out {tmp_path}"
    report = step_costs.main([*text.split(), "--forms", "LSH, pool, SimHash", "full softmax"])
    assert json.loads((tmp_path / "step_costs.json").read_text()) == report
    assert (tmp_path / "step_costs.png").stat().st_size > 1000
    assert [run["num_classes"] for run in report["runs"]] == [300, 300, 600]
    assert report["runs"][0]["tables_mb"] > 0 and report["runs"][2]["rebuild_cpu_ms"] > 0
