"""`measure`."""

import dataclasses
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from benchmarks.rivals.models import not_installed

# TensorFlow and PyTorch crash in one process, so this program does not import TensorFlow.
_PROGRAM = "benchmarks.other_libraries.step_loop"
LIBRARIES = {"torch": "PyTorch", "jax": "JAX", "keras": "Keras on JAX"}
ROOT = pathlib.Path(__file__).parents[2]


def measure(case, task, turn=None, steps_per_turn=0):
    """Measures the steps of another library in a separate process.

    Args:
        case: A `StepCase`. Its method begins with a key of `LIBRARIES`, its package.
        task: The `Task` with the batches.
        turn: As for a `StepClock`.
        steps_per_turn: As for a `StepClock`.

    Returns:
        The figures of a `StepClock`; `library`, its version; and `loss`, the name of its loss
        function.

    Raises:
        ImportError: If the library is not installed.
        ValueError: If the device is not a CPU.
        RuntimeError: If the process failed. The message contains the last line of its output.
    """
    package = case.method.partition("_")[0]
    if case.python is None and importlib.util.find_spec(package) is None:
        raise not_installed(package)
    if case.device != "cpu":
        raise ValueError(
            f"The steps of {LIBRARIES[package]} are measured on a CPU only: use --device cpu."
        )
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "arrays.npz"
        features, labels = map(np.stack, zip(*task.one_epoch(), strict=True))
        np.savez(path, features=features, labels=labels)
        turns = {"arrays": str(path), "steps_per_turn": steps_per_turn if turn else 0}
        return _run({**dataclasses.asdict(case), **turns, "package": package}, turn)


def _run(case, turn):
    python = case["python"] or sys.executable
    command = [python, "-m", _PROGRAM, json.dumps(case)]
    with tempfile.TemporaryFile("w+") as messages:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
            cwd=ROOT,
        )
        with process:
            for line in process.stdout:
                figures = json.loads(line)
                if figures is not None:
                    return figures
                turn.pass_on()
                print(file=process.stdin, flush=True)
        messages.seek(0)
        last = (messages.read().splitlines() or [f"exit code {process.returncode}"])[-1]
    raise RuntimeError(f"The process of {LIBRARIES[case['package']]} failed: {last}")
