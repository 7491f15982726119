"""`PrecisionAtK`."""

import keras
import tensorflow as tf

from tf_largeout.metrics.rank_metric import RankMetric
from tf_largeout.types import DTypeLike


@keras.saving.register_keras_serializable(package="tf_largeout")
class PrecisionAtK(RankMetric):
    """P@k: the share of labels among the k classes that score highest.

    `P@k = mean over rows of #{labels with rank < k} / k`, also for rows with fewer than k
    labels, as in the extreme classification repository. With one label a row, P@1 is accuracy.

    Exact in `evaluate`; see `RankMetric` for what it shows in training.

    Args:
        k: How many of the best classes count, from 1 to the number of classes.
        name: Name of the metric, "precision_at_{k}" by default.

    Example:

    >>> model.compile(loss=tflo.losses.SampledSoftmaxLoss(),
    ...               metrics=[tflo.metrics.PrecisionAtK(1), tflo.metrics.PrecisionAtK(5)])
    """

    def __init__(self, k: int, name: str | None = None, dtype: DTypeLike | None = None) -> None:
        super().__init__(k, name=name or f"precision_at_{k}", dtype=dtype)

    def hit_terms(
        self, hits: tf.Tensor, labels: tf.Tensor, valid: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        found = tf.reduce_sum(tf.cast(hits, tf.float64), axis=-1)
        return found / self.k, tf.ones_like(found)
