"""`LogProbabilityOutput`: the base class of the layers that return log-probabilities."""

import keras
import numpy as np

from tf_largeout.classes import probabilities
from tf_largeout.classes.probabilities import Probabilities, Scores
from tf_largeout.layers.class_output import ClassOutput
from tf_largeout.papers.hierarchical.log_probabilities import LogProbabilityTag
from tf_largeout.variables import initializers


class LogProbabilityOutput(ClassOutput):
    """An output layer whose scores are log-probabilities, which a hierarchy of classes gives.

    Its `class_matrix` has the method `class_log_probabilities`.
    """

    tag_class = LogProbabilityTag

    def probabilities(
        self, scores: Scores, absolute: bool | None = None
    ) -> Probabilities | None:
        """See `ClassOutput`. The scores are log-probabilities already."""
        if scores == "sigmoid":
            raise ValueError(
                f"`scores='sigmoid'` needs logits, but the scores of layer '{self.name}' are "
                "log-probabilities. Use scores='softmax'."
            )
        if scores == "softmax":
            return probabilities.exponential
        return super().probabilities(scores, absolute)

    def add_constant(self, name: str, values: np.ndarray) -> keras.Variable:
        """Adds an int64 weight that is saved but not trained."""
        values = values.astype(np.int64)
        return self.add_class_weight(
            name,
            values.shape,
            initializers.constant_initializer(values),
            dtype="int64",
            trainable=False,
        )
