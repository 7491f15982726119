"""`RecallAtK`."""

import keras
import tensorflow as tf

from tf_largeout.metrics.rank_metric import RankMetric
from tf_largeout.types import DTypeLike


@keras.saving.register_keras_serializable(package="tf_largeout")
class RecallAtK(RankMetric):
    """R@k: the share of a row's labels that are among the k classes that score highest.

    `R@k = mean over rows with labels of #{labels with rank < k} / #labels`.

    Exact in `evaluate`; see `RankMetric` for what it shows in training.

    Args:
        k: How many of the best classes count, from 1 to the number of classes.
        name: Name of the metric, "recall_at_{k}" by default.
    """

    def __init__(self, k: int, name: str | None = None, dtype: DTypeLike | None = None) -> None:
        super().__init__(k, name=name or f"recall_at_{k}", dtype=dtype)

    def hit_terms(
        self, hits: tf.Tensor, labels: tf.Tensor, valid: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        found = tf.reduce_sum(tf.cast(hits, tf.float64), axis=-1)
        count = tf.reduce_sum(tf.cast(valid, tf.float64), axis=-1)
        return tf.math.divide_no_nan(found, count), tf.ones_like(found)
