"""What the comparison knows of a step, and who offers which."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

TASKS = ("sampled", "loss", "softmax", "top_k")
PRECISIONS = ("float32", "TF32")


class Step(Protocol):
    """A step with its arrays on the device."""

    def run(self) -> None:
        """Queues the step, which updates its arrays."""

    def wait(self) -> None:
        """Waits until all that was queued is done."""

    def results(self) -> dict[str, np.ndarray]:
        """Returns what the first run computed, under the names of reference.py."""

    def peak_bytes(self) -> int | None:
        """The most device memory that the step held, or None where that is not known."""

    def close(self) -> None:
        """Frees the device memory."""


@dataclasses.dataclass(frozen=True)
class Offer:
    """A way to do a task: who, how, in which precision, and the step from its problem."""

    framework: str
    variant: str
    precision: str
    make: Callable[[Any], Step]
