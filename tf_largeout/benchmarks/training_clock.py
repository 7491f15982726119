"""Trains for a given time inside `fit`, and looks at the model on the way."""

import sys
import time

import keras
from tqdm import tqdm


class TrainingClock(keras.callbacks.Callback):
    """Stops `fit` after some seconds of training and evaluates at fixed points of that time.

    Time starts after the first execution, which traces the graph, and stands still during an
    evaluation. Everything else that `fit` does is counted: input, callbacks, Keras itself.

    Args:
        seconds: training time in all.
        every: seconds from one point to the next; the end is a point too.
        on_point: called with (seconds, steps) at each point; returns figures, `p1` among them.
        spent: seconds of training that lie behind a resumed model.
        anneal: pair (learning rate, share of the time at its end over which that rate falls to
            zero); None leaves the optimizer's rate alone.
        title: of the progress bar; None shows none.
    """

    def __init__(self, seconds, every, on_point, spent=0.0, anneal=None, title=None):
        super().__init__()
        self.seconds, self.every, self.on_point = seconds, every, on_point
        self.spent, self.anneal, self.title = spent, anneal, title
        self.start, self.bar = None, None
        self.next_point = min((spent // every + 1) * every, seconds)

    def on_train_begin(self, logs=None):
        if self.title:
            shape = "{desc} |{bar}| {n:.0f}/{total:.0f} s {postfix}"
            self.bar = tqdm(
                total=self.seconds,
                desc=self.title,
                bar_format=shape,
                initial=self.spent,
                file=sys.stdout,
            )

    def on_train_batch_end(self, batch, logs=None):
        if self.start is None:
            self.start = time.perf_counter() - self.spent
            return
        now = min(time.perf_counter() - self.start, self.seconds)
        self._set_rate(now)
        if now >= self.next_point:
            before = time.perf_counter()
            figures = self.on_point(now, int(self.model.optimizer.iterations))
            if self.bar:
                self.bar.set_postfix_str(f"P@1 {figures['p1']:.1f}", refresh=False)
            self.start += time.perf_counter() - before
            self.next_point = min((now // self.every + 1) * self.every, self.seconds)
        self._show(now)
        if now >= self.seconds:
            self.model.stop_training = True

    def on_train_end(self, logs=None):
        if self.bar:
            self.bar.close()

    def _show(self, now):
        if self.bar and (now - self.bar.n >= 0.5 or now >= self.seconds):
            self.bar.update(now - self.bar.n)

    def _set_rate(self, now):
        if self.anneal:
            rate, share = self.anneal
            left = (1 - now / self.seconds) / share
            self.model.optimizer.learning_rate.assign(rate * min(1.0, left))
