"""`MeanReciprocalRank`."""

import keras
import tensorflow as tf

from tf_largeout.metrics.rank_metric import FullRankMetric, RankedLabels


@keras.saving.register_keras_serializable(package="tf_largeout")
class MeanReciprocalRank(FullRankMetric):
    """MRR: the mean of 1 / (position of the first label among the ranked classes).

    `MRR@k = mean over examples with labels of 1 / (1 + r)`, where r is the rank of the best
    label, starting at 0; the term is 0 if r is not below k. It equals
    `keras_rs.metrics.MeanReciprocalRank`.

    It is exact in `evaluate`, and in training with an exact loss. In training with a sampled
    loss, it ranks each label among the labels of its example and the classes drawn in that
    step. So the value is too high: the true rank is never better. With other losses, the value
    is NaN.

    Args:
        k: Number of best classes to consider, from 1 to the number of classes. None, the
            default, considers all classes.
        absolute: True to rank by `|logit|`, False to rank by the logit. None, the default,
            uses the `ranking` of the layer, which the layer takes from its loss.
        name: Name of the metric. By default "mean_reciprocal_rank" or
            "mean_reciprocal_rank_at_{k}"; with "absolute_" before it if `absolute` is True.
        dtype: Dtype of the result, as in `keras.metrics.Metric`. The sums are float64.

    Call arguments:
        y_true: Integer class ids, as for the losses: one per example, or several, padded with
            -1 or ragged. Repeated labels count once. An example without labels has weight 0.
            `with_exclude` adds classes that must not be ranked.
        y_pred: The direct output of an output layer of this library.
        sample_weight: Optional weights of the examples, aligned with their leading dimensions.

    Raises:
        ValueError: If `k` is not a positive integer or exceeds the number of classes, if
            `y_pred` is not the direct output of such a layer, or if labels or weights do not
            match it.
    """

    kind = "mean_reciprocal_rank"

    def hit_terms(self, ranked: RankedLabels) -> tuple[tf.Tensor, tf.Tensor]:
        reciprocals = 1 / (1 + tf.cast(ranked.ranks, tf.float64))
        padded = tf.pad(tf.where(ranked.hits, reciprocals, 0), [[0, 0], [0, 1]])
        best = tf.reduce_max(padded, axis=-1)  # 0 for an example without labels
        return best, tf.ones_like(best)
