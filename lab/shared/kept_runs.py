"""Runs whose figures are kept in files, so that an interrupted series can be continued."""

import json
import pathlib

from benchmarks.harness import machine, own_process
from benchmarks.harness.files import write_json


def _p1(run):
    return f"P@1 {run['p1']:.1f}"


class KeptRuns:
    """The runs of a program, and their report, which is written after each run.

    Args:
        folder: of the files of the runs.
        report: file of the report: `machine`, `about` and the list `runs`.
        line: function of a run that formats the line to print when it ends.
        about: what else the report says of the series.
    """

    def __init__(self, folder, report, line=_p1, **about):
        self._folder, self._file, self._line = pathlib.Path(folder), report, line
        self.runs = []
        self.report = {"machine": machine.describe(), **about, "runs": self.runs}

    def add(self, words, settings, train, *arguments):
        """Adds the run of its file, or else that of `train(*arguments)` in a new process.

        Args:
            words: name the file, joined by "-".
            settings: entries of the run in addition to the figures that `train` returns.
            train: function that returns a dict.
            *arguments: of `train`.
        """
        name = "-".join(str(word) for word in words).replace("/", "_").replace(" ", "_")
        path = self._folder / f"{name}.json"
        if path.exists():
            run = json.loads(path.read_text())
        else:
            run = {**settings, **own_process.call(train, *arguments)}
            write_json(path, run)
            print(f"{name}: {self._line(run)}", flush=True)
        self.runs.append(run)
        write_json(self._file, self.report)
