"""All learning rates of a model, lowered together."""

import keras

from tf_largeout.layers import FactoredOutput


class LearningRates:
    """Those of a model's optimizer and of its layers that step by themselves.

    Args:
        model: a compiled model.
        share: what of the full rates it has now.
    """

    def __init__(self, model, share=1.0):
        layers = [layer for layer in model.layers if isinstance(layer, FactoredOutput)]
        self._learners = [model.optimizer, *layers]
        self._full = [float(learner.learning_rate) / share for learner in self._learners]

    def set_share(self, share):
        """Sets each to that share of its full rate, which is above 0."""
        for learner, full in zip(self._learners, self._full, strict=True):
            learner.learning_rate = full * share


class FallingRates(keras.callbacks.Callback):
    """Lets all learning rates fall to zero in a line, over a number of steps."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def on_train_begin(self, logs=None):
        self.rates = LearningRates(self.model)

    def on_train_batch_end(self, batch, logs=None):
        left = 1 - int(self.model.optimizer.iterations) / self.steps
        if left > 0:
            self.rates.set_share(left)
