"""Changes all learning rates of a model together."""

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
