"""The program of `step_process`: a loop written by hand, over batches in memory."""

import importlib
import json
import sys
import time

import numpy as np

from benchmarks.harness import machine
from benchmarks.harness.step_clock import StepClock


def main(case):
    """Measures and writes the figures to the standard output as a line of JSON.

    Args:
        case: The attributes of a `StepCase`, and three more. `package` is the library, whose
            steps are in the module `PACKAGE_steps`. If it has a function `fit`, this measures
            the steps in a loop of the library. `arrays` is the path of features
            `[n, batch_size, dim]` and labels `[n, batch_size]`. `steps_per_turn` is 0 for no
            turns. At the end of a turn, the process writes a line with null, and waits for a
            line of its standard input.
    """
    steps = importlib.import_module(f"{__package__}.{case['package']}_steps")
    library = steps.prepare(case["threads"])
    clock = StepClock(
        case["max_steps"],
        case["max_seconds"],
        turn=_Turn() if case["steps_per_turn"] else None,
        steps_per_turn=case["steps_per_turn"],
        finish=lambda: None,
    )
    with np.load(case["arrays"]) as arrays:
        features, labels = arrays["features"], arrays["labels"]
    train_step, loss = steps.new_step(case, features, labels)
    loop = getattr(steps, "fit", measure) if case.get("what", "step") == "step" else measure
    figures = loop(train_step, len(labels), clock)
    print(json.dumps({**figures, "library": library, "loss": loss}))


def measure(train_step, num_batches, clock):
    """Calls `train_step(batch)`, which returns when it is done; returns the clock's figures.

    The slots of the optimizers exist before memory is measured.
    """
    start = time.perf_counter()
    train_step(0)
    first_step_s = time.perf_counter() - start
    standing = machine.resident_mb()
    enough, step = False, 0
    while not enough:
        clock.begin()
        train_step(step % num_batches)
        enough, step = clock.end(), step + 1
    return {**clock.figures(standing), "first_step_s": first_step_s}


class _Turn:
    def pass_on(self):
        print("null", flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
