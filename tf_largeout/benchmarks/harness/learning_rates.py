"""Changes all learning rates of a model together."""

import keras

from tf_largeout.layers import FactoredOutput


class LearningRates:
    """The rates of a model's optimizer, and of its layers that update themselves.

    Args:
        model: A compiled model.
        share: The current share of the full rates.
    """

    def __init__(self, model, share=1.0):
        layers = [layer for layer in model.layers if isinstance(layer, FactoredOutput)]
        self._learners = [model.optimizer, *layers]
        self._full = [float(learner.learning_rate) / share for learner in self._learners]

    def set_share(self, share):
        """Sets each rate to a share above 0 of its full rate."""
        for learner, full in zip(self._learners, self._full, strict=True):
            learner.learning_rate = full * share


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
