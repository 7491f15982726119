"""Trains for a given time or number of steps inside `fit`, with evaluations at intervals."""

import sys

import keras
from tqdm import tqdm

from benchmarks.harness.learning_rates import LearningRates
from benchmarks.harness.stopwatch import Stopwatch

ENDLESS = 1_000_000_000  # steps an epoch, where the clock ends it


class TrainingClock(keras.callbacks.Callback):
    """Stops `fit` after a given time or number of steps, and evaluates at fixed points.

    Time starts after the first execution, which traces the graph, and is stopped during an
    evaluation. The time of everything else in `fit` is counted: input, callbacks and Keras
    itself.

    Args:
        seconds: total training time; ignored if there are `steps`.
        every: seconds, or steps, from one point to the next; the end is a point too.
        on_point: called with (model, seconds, steps) at each point; returns figures, including
            `p1`.
        stopwatch: a `Stopwatch` with the training time of a resumed model so far; by default a
            new one.
        by_cpu: whether to count CPU seconds, which do not depend on other programs.
        anneal: share of the training, at its end, over which the learning rate falls to zero.
        title: title of the progress bar; None shows no bar.
        steps: total number of training steps, whatever time they take; None to stop after
            `seconds`. The last execution is always complete.
    """

    def __init__(
        self,
        seconds,
        every,
        on_point,
        stopwatch=None,
        by_cpu=False,
        anneal=0.0,
        title=None,
        steps=None,
    ):
        super().__init__()
        self.total, self.by_steps = steps or seconds, steps is not None
        self.every, self.on_point = every, on_point
        self.stopwatch, self.by_cpu = stopwatch or Stopwatch(), by_cpu
        self.anneal, self.title = anneal, title
        self.is_running, self.bar = False, None

    def on_train_begin(self, logs=None):
        self.next_point = self._point_after(self._spent())
        if self.anneal:  # the rate of a resumed optimizer has already fallen
            self.rates = LearningRates(self.model, self._share_of_rate(self._spent()))
        if self.title:
            unit = "steps, {remaining} left" if self.by_steps else "s"
            self.bar = tqdm(
                total=self.total,
                desc=self.title,
                bar_format=f"{{desc}} |{{bar}}| {{n:.0f}}/{{total:.0f}} {unit}{{postfix}}",
                initial=self._spent(),
                file=sys.stdout,
            )

    def on_train_batch_end(self, batch, logs=None):
        if not self.is_running:
            self.is_running = True
            self.stopwatch.start()
            return
        now = self._spent()
        if self.anneal and now < self.total:
            self.rates.set_share(self._share_of_rate(now))
        if now >= self.next_point:
            self._look(now)
        if self.bar and (now - self.bar.n >= 0.5 or now >= self.total):
            self.bar.update(now - self.bar.n)
        if now >= self.total:
            self.model.stop_training = True

    def on_train_end(self, logs=None):
        if self.bar:
            self.bar.close()

    def _look(self, now):
        with self.stopwatch.paused():
            seconds = self._seconds() if self.by_steps else now
            figures = self.on_point(self.model, seconds, self._steps())
            if self.bar:
                self.bar.set_postfix_str(f"P@1 {figures['p1']:.1f}", refresh=False)
        self.next_point = self._point_after(now)

    def _spent(self):
        """Returns the steps or seconds so far."""
        return min(self._steps() if self.by_steps else self._seconds(), self.total)

    def _steps(self):
        return int(self.model.optimizer.iterations)

    def _seconds(self):
        return self.stopwatch.cpu if self.by_cpu else self.stopwatch.wall

    def _point_after(self, now):
        return min((now // self.every + 1) * self.every, self.total)

    def _share_of_rate(self, now):
        return min(1.0, (1 - now / self.total) / self.anneal) if self.anneal else 1.0
