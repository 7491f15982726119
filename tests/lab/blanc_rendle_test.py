"""The command of the note on Blanc & Rendle 2018."""

import pathlib

import pytest

from benchmarks.harness.training import TrainingRun
from lab.blanc_rendle import __main__, bias
from lab.kernel_trees import absolute_text
from lab.shared import threads
from tests.lab import brown


def test_all_series_use_the_rate_with_the_lowest_validation_perplexity(monkeypatch):
    calls, last = [], {5: 80.0, 10: 70.0, 20: 75.0}

    def run(arguments):
        calls.append(bias._parser().parse_args(arguments))
        rates = calls[-1].learning_rates
        runs = [{"learning_rate": at, "validation_perplexity": [60, last[at]]} for at in rates]
        return {"runs": runs}

    for name in ("draw_cost", "draw_worth", "absolute", "absolute_text"):
        program = getattr(__main__, name)
        monkeypatch.setattr(program, "main", program._parser().parse_args)
    monkeypatch.setattr(bias, "main", run)
    __main__.main()
    rates = [call.learning_rates for call in calls]
    assert rates == [[5, 10, 20], *([10] for _ in __main__.SERIES), [5]]
    assert len({call.json for call in calls}) == len(calls)


@pytest.mark.slow
def test_the_command_makes_all_files(tmp_path, monkeypatch):
    brown.provide(tmp_path, monkeypatch)
    monkeypatch.setattr(threads, "use_one", lambda: None)
    monkeypatch.setattr(TrainingRun, "in_own_process", _in_this_process)
    negatives = dict.fromkeys(absolute_text.NEGATIVES, 4)
    monkeypatch.setattr(absolute_text, "NEGATIVES", negatives)
    monkeypatch.chdir(tmp_path)
    small = [*brown.SMALL, "--validation-fraction", "0.3", "--points", "1", "--epochs", "1"]
    timed = ["--task", "synthetic", "--seconds", "0.1", "--sample", "50", "--runs", "1"]
    __main__.main(
        of_bias=[*small, "--num-sampled", "4", "--seeds", "0"],
        of_draw_cost=["--shapes", "300x8", "500x8", "--num-sampled", "2", "--draws", "8"],
        of_draw_worth=["--tasks", "synthetic", "--seconds", "0.1", "--sample", "4"],
        of_absolute=[*timed, "--methods", "frequency_own", "kernel_tree_absolute"],
        of_text=["--dataset", "brown", *brown.SMALL, "--seconds", "0.1", "--seeds", "0"],
    )
    series = ["rates", *__main__.SERIES, "lower_rate"]
    files = {f"{name}.{kind}" for name in series for kind in ("json", "png")}
    names = ["draw_cost", "draw_worth", *__main__.ABSOLUTE, "absolute_gcide"]
    files |= {f"{name}.json" for name in names}
    folder = pathlib.Path("benchmark-results/blanc_rendle")
    assert {path.name for path in folder.iterdir() if path.is_file()} == files


def _in_this_process(run):
    run.train()
    return run.read_log()
