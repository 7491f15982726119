"""`StepEnds`."""

import time

import keras
import numpy as np


class StepEnds(keras.callbacks.Callback):
    """Wall and CPU time at which each step of `fit` ends."""

    def __init__(self):
        super().__init__()
        self.ends = []

    def on_train_batch_end(self, batch, logs=None):
        self.ends.append((time.perf_counter(), time.process_time()))

    def medians(self, after):
        """Returns the medians of the wall and CPU ms of the steps after the first `after`."""
        times = np.diff(self.ends[after - 1 :], axis=0)
        return (1e3 * np.median(times, axis=0)).tolist()
