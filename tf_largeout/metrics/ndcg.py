"""`NDCG`."""

import keras
import tensorflow as tf

from tf_largeout.metrics.rank_metric import FullRankMetric, RankedLabels


@keras.saving.register_keras_serializable(package="tf_largeout")
class NDCG(FullRankMetric):
    """Normalized discounted cumulative gain of the k highest-scoring classes.

        NDCG@k = mean over examples with labels of DCG@k / (the largest possible DCG@k)
        DCG@k = sum_{labels with rank r < k} 1 / log2(r + 2)

    where ranks start at 0. The largest possible value has the labels at the ranks 0, 1, ...,
    `min(k, #labels) - 1`. This is the NDCG of Järvelin and Kekäläinen (2002), "Cumulated
    gain-based evaluation of IR techniques", with the discount of Burges et al. (2005) and the
    gain 1 for each label, and equals `keras_rs.metrics.NDCG` with relevances of 0 and 1.

    It is exact in `evaluate`, and in training with an exact loss. In training with a sampled
    loss, it ranks each label among the labels of its example and the classes drawn in that
    step. So the value is too high: the true rank is never better. With other losses, the value
    is NaN.

    Args:
        k: Number of best classes to consider, from 1 to the number of classes. None, the
            default, considers all classes.
        absolute: True to rank by `|logit|`, False to rank by the logit. None, the default,
            uses the `ranking` of the layer, which the layer takes from its loss.
        name: Name of the metric. By default "ndcg" or
            "ndcg_at_{k}"; with "absolute_" before it if `absolute` is True.
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

    kind = "ndcg"

    def hit_terms(self, ranked: RankedLabels) -> tuple[tf.Tensor, tf.Tensor]:
        ranks = tf.cast(ranked.ranks, tf.float64)
        gains = ranked.sum_over_hits(_discount(ranks))
        width = tf.cast(tf.shape(ranks)[1], tf.float64)
        best = tf.range(tf.minimum(width, tf.cast(ranked.k, tf.float64)), dtype=tf.float64)
        is_filled = best < ranked.num_labels()[:, tf.newaxis]
        ideal = tf.reduce_sum(tf.where(is_filled, _discount(best), 0), axis=-1)
        return tf.math.divide_no_nan(gains, ideal), tf.ones_like(gains)


def _discount(ranks: tf.Tensor) -> tf.Tensor:
    return tf.math.log(tf.constant(2.0, tf.float64)) / tf.math.log(ranks + 2)
