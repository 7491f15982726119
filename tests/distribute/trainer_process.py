"""Runs a program from this folder in another process."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def run(program, *arguments):
    """Runs `tests.distribute.PROGRAM` to its end; returns the process with its output."""
    return subprocess.run(
        [sys.executable, "-m", f"tests.distribute.{program}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def found(process):
    """Returns the JSON in the last line that a successful process printed."""
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])
