"""Runs a program of this folder that trains on servers, in its own process."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def run(program, *arguments):
    """The ended process of `tests.distribute.PROGRAM`, with its output."""
    return subprocess.run(
        [sys.executable, "-m", f"tests.distribute.{program}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def found(process):
    """The last line that a successful process printed: JSON."""
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])
