"""`StepClock`."""

import time

import numpy as np

from benchmarks.harness import machine

WARM_UP = 5


class StepClock:
    """Wall and CPU time of each step after the first `warm_up`, and peak memory in that time.

    Args:
        max_steps: Steps to measure at most.
        max_seconds: Measured wall time at most; at least five steps are measured.
        device: "cpu" or "gpu".
        turn: A `Turn` that is passed on after each `steps_per_turn` measured steps, or None.
        steps_per_turn: See `turn`.
        finish: Function that waits for the queued work of a step. By default TensorFlow's.
        warm_up: Number of steps before the measured ones.
    """

    def __init__(
        self,
        max_steps,
        max_seconds,
        device="cpu",
        turn=None,
        steps_per_turn=10,
        finish=machine.finish,
        warm_up=WARM_UP,
    ):
        self.max_steps, self.max_seconds, self.device = max_steps, max_seconds, device
        self._finish, self._warm_up = finish, warm_up
        self.turn, self.steps_per_turn = turn, steps_per_turn
        self.milliseconds, self.cpu_milliseconds = [], []
        self._begun = 0
        self._first_s = 0.0

    def begin(self):
        """Starts a step."""
        if self._begun == self._warm_up:
            machine.reset_peak(self.device)
        self._begun += 1
        measured = len(self.milliseconds)
        if self.turn and measured and measured % self.steps_per_turn == 0:
            self.turn.pass_on()
        self._start = time.perf_counter(), time.process_time()

    def end(self):
        """Ends a step; returns whether enough steps are measured."""
        self._finish()
        if self._begun == 1:
            self._first_s = time.perf_counter() - self._start[0]
        if self._begun <= self._warm_up:
            return False
        self.milliseconds.append(1e3 * (time.perf_counter() - self._start[0]))
        self.cpu_milliseconds.append(1e3 * (time.process_time() - self._start[1]))
        measured = len(self.milliseconds)
        too_long = measured >= 5 and sum(self.milliseconds) > 1e3 * self.max_seconds
        return too_long or measured >= self.max_steps

    def figures(self, standing_mb):
        """Returns percentiles 10, 50 and 90 of both times, medians of each turn, and memory.

        `first_step_s` is the time of the first step, which traces and compiles, in seconds.

        Args:
            standing_mb: Memory before the first step, with all weights and slots.
        """
        low, median, high = np.percentile(self.milliseconds, [10, 50, 90]).tolist()
        cpu = np.percentile(self.cpu_milliseconds, [10, 50, 90]).tolist()
        figures = {"ms": median, "ms_10": low, "ms_90": high, "steps": len(self.milliseconds)}
        peak_mb = machine.peak_mb(self.device)
        figures |= {
            "peak_mb": peak_mb,
            "weights_and_slots_mb": standing_mb,
            "step_mb": peak_mb - standing_mb,
        }
        figures["first_step_s"] = self._first_s
        figures |= dict(zip(("cpu_ms_10", "cpu_ms", "cpu_ms_90"), cpu, strict=True))
        if self.turn:
            figures["turns_ms"] = self._medians_of_turns(self.milliseconds)
            figures["turns_cpu_ms"] = self._medians_of_turns(self.cpu_milliseconds)
        return figures

    def _medians_of_turns(self, times):
        firsts = range(0, len(times), self.steps_per_turn)
        return [float(np.median(times[at : at + self.steps_per_turn])) for at in firsts]
