"""`FallingRates`."""

import keras

from benchmarks.harness.training import LearningRates


class FallingRates(keras.callbacks.Callback):
    """Lowers all learning rates linearly to zero over a number of steps."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def on_train_begin(self, logs=None):
        self.rates = LearningRates(self.model)

    def on_train_batch_end(self, batch, logs=None):
        left = 1 - int(self.model.optimizer.iterations) / self.steps
        if left > 0:
            self.rates.set_share(left)
