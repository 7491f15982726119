"""The ways to train a `FactoredOutput`; a new one is one line in `FACTORED_HEADS`."""

import collections.abc
import dataclasses

import keras

from tf_largeout import losses
from tf_largeout.layers import FactoredOutput


@dataclasses.dataclass(frozen=True)
class FactoredHead:
    """A loss of the spherical family, and the settings of a `FactoredOutput` for it.

    Attributes:
        title: name in tables and figures.
        loss: function without arguments that creates the loss.
        class_rate: default learning rate of the layer: the first one to try, by the guide on
            `FactoredOutput`, for batches of 512 or more. See `rate_for` for smaller batches.
        absolute: whether the classes are ranked by `|logit|`.
        has_probabilities: whether the loss is the cross entropy of a distribution.
        from_zero: whether the features have length 1 and the class rows start at 0. With random
            rows, the squared error is lowest if the features are 0, so the encoder would learn
            to output 0 before the rows learn anything.
    """

    title: str
    loss: collections.abc.Callable
    class_rate: float
    absolute: bool = False
    has_probabilities: bool = False
    from_zero: bool = False

    def rate_for(self, batch_size):
        """Returns the first rate to try, by the guide, for batches of any size."""
        return self.class_rate * (1 if self.from_zero else min(1, batch_size / 512))

    def layers(self, num_classes, learning_rate):
        """Returns the layers from features to logits."""
        if not self.from_zero:
            return [FactoredOutput(num_classes, learning_rate)]
        rows = FactoredOutput(num_classes, learning_rate, embeddings_initializer="zeros")
        return [keras.layers.UnitNormalization(), rows]


FACTORED_HEADS = {
    "taylor": FactoredHead(
        "Taylor softmax", losses.TaylorSoftmaxLoss, 2000.0, has_probabilities=True
    ),
    "spherical": FactoredHead(
        "spherical softmax",
        losses.SphericalSoftmaxLoss,
        100.0,
        absolute=True,
        has_probabilities=True,
    ),
    "z": FactoredHead("Z-loss", losses.ZLoss, 50.0),
    "squared_error": FactoredHead(
        "squared error", losses.SquaredErrorLoss, 0.2, from_zero=True
    ),
}
