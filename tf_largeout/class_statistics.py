"""What exact passes over all classes tell."""

from typing import NamedTuple

import tensorflow as tf


class ClassStatistics(NamedTuple):
    """What one exact pass over all classes tells about a batch of `B` rows.

    Attributes:
        log_partition: float32 `[B]`, log of the sum over classes of `exp(logit)`.
        true_logits: float32 `[B, L]`, logits of the labels; 0 in padded places.
        ranks: int64 `[B, L]`, how many classes score higher than the label (of equal ones,
            those with a lower id); `num_classes` in padded places.
    """

    log_partition: tf.Tensor
    true_logits: tf.Tensor
    ranks: tf.Tensor


class AbsoluteStatistics(NamedTuple):
    """The `ClassStatistics` of `|logit|`, without the ranks, which take another pass.

    Attributes:
        log_partition: float32 `[B]`, log of the sum over classes of `exp(|logit|)`.
        true_logits: float32 `[B, L]`, `|logit|` of the labels; 0 in padded places.
    """

    log_partition: tf.Tensor
    true_logits: tf.Tensor
