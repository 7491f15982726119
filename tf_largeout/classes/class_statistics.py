"""`ClassStatistics`: what losses and metrics need of all classes."""

import functools
from collections.abc import Callable

import tensorflow as tf


class ClassStatistics:
    """Exact statistics over all classes of a batch of `B` examples with `L` labels each.

    Args:
        log_partition: As below.
        true_logits: As below.
        ranks: As below, or a function that computes them, in another pass over the classes;
            None if they are not known.

    Attributes:
        log_partition: float32 `[B]`, log of the sum over classes of `exp(logit)`.
        true_logits: float32 `[B, L]`, logits of the labels; 0 at padding.
    """

    def __init__(
        self,
        log_partition: tf.Tensor,
        true_logits: tf.Tensor,
        ranks: tf.Tensor | Callable[[], tf.Tensor] | None,
    ) -> None:
        self.log_partition, self.true_logits, self._ranks = log_partition, true_logits, ranks

    @functools.cached_property
    def ranks(self) -> tf.Tensor | None:
        """int64 `[B, L]`, how many classes score higher than the label; None if not known.

        Of equal scores, the lower id ranks higher. `num_classes` at padding.
        """
        return self._ranks() if callable(self._ranks) else self._ranks
