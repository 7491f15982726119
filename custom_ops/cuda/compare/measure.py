"""Runs steps: first held to the reference, then timed."""

import dataclasses
import math
import statistics
import time
from typing import Any

import numpy as np

from custom_ops.cuda.compare.step import Offer, Step

# |found - expected| / |expected|, norms over the whole array. Products of TF32 round their
# factors to 11 bits.
TOLERANCES = {"float32": 3e-4, "TF32": 1e-2}

_WARM_UPS = 3
_SHORTEST_SECONDS = 0.02  # of a repetition; short steps are repeated in it
_MOST_STEPS = 200


@dataclasses.dataclass
class Measurement:
    """What came of a step. A step that failed has a text and no times."""

    task: str
    framework: str
    variant: str
    precision: str
    failure: str = ""
    errors: dict[str, float] = dataclasses.field(default_factory=dict)
    milliseconds: list[float] = dataclasses.field(default_factory=list)
    peak_mib: float | None = None

    @property
    def median(self) -> float | None:
        """The median time of a step in ms, or None."""
        return statistics.median(self.milliseconds) if self.milliseconds else None


def measure(
    task: str, offer: Offer, problem: Any, expected: dict[str, np.ndarray], repetitions: int
) -> Measurement:
    """Makes a step, checks its first run, and times it if that was right."""
    made = Measurement(task, offer.framework, offer.variant, offer.precision)
    step = None
    try:
        step = offer.make(problem)
        step.run()
        step.wait()
        made.errors = errors_of(step.results(), expected)
        made.failure = failure_of(made.errors, TOLERANCES[offer.precision])
        if not made.failure:
            made.milliseconds = time_step(step, repetitions)
        peak = step.peak_bytes()
        made.peak_mib = None if peak is None else peak / 2**20
    except Exception as error:  # of any framework: out of memory above all
        made.failure = f"{type(error).__name__}: {str(error).strip()}"
        made.milliseconds = []
    finally:
        if step is not None:
            step.close()
    return made


def errors_of(
    found: dict[str, np.ndarray], expected: dict[str, np.ndarray]
) -> dict[str, float]:
    """Returns the relative error of each result.

    Raises:
        ValueError: if results or their shapes are others than expected.
    """
    shapes = [{name: np.shape(one[name]) for name in one} for one in (found, expected)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"results are {shapes[0]}, expected {shapes[1]}")
    return {
        name: float(np.linalg.norm(found[name] - value) / np.linalg.norm(value))
        for name, value in expected.items()
        if np.size(value)
    }


def failure_of(errors: dict[str, float], tolerance: float) -> str:
    """Says which errors are above the tolerance, or not a number."""
    wrong = [f"{name} by {one:.1e}" for name, one in errors.items() if not one <= tolerance]
    return f"wrong: {', '.join(wrong)}; tolerance {tolerance:.0e}" if wrong else ""


def time_step(step: Step, repetitions: int) -> list[float]:
    """Returns the ms a step of each repetition.

    One rule for all frameworks: a repetition queues steps one behind the other, as training
    does, and ends when the device has done them. The clock is that of the host.
    """
    for _ in range(_WARM_UPS):
        seconds = _seconds(step, 1)
    steps = max(1, min(_MOST_STEPS, math.ceil(_SHORTEST_SECONDS / max(seconds, 1e-9))))
    return [_seconds(step, steps) / steps * 1e3 for _ in range(repetitions)]


def _seconds(step: Step, steps: int) -> float:
    begin = time.perf_counter()
    for _ in range(steps):
        step.run()
    step.wait()
    return time.perf_counter() - begin
