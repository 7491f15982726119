"""`MeanAveragePrecision`."""

import keras
import tensorflow as tf

from tf_largeout.metrics.rank_metric import FullRankMetric, RankedLabels


@keras.saving.register_keras_serializable(package="tf_largeout")
class MeanAveragePrecision(FullRankMetric):
    """MAP: the mean over labels of the precision down to the label's position.

        MAP@k = mean over examples of (1 / #labels) sum_{labels with rank r < k} P@(r + 1)

    where ranks start at 0, and `P@n` is the share of the n best classes that are labels. The
    divisor is the number of all labels, as in `keras_rs.metrics.MeanAveragePrecision` and
    Manning et al. (2008), "Introduction to Information Retrieval", section 8.4. Some libraries
    divide MAP@k by `min(k, #labels)` instead.

    It is exact in `evaluate`, and in training with an exact loss. In training with a sampled
    loss, it ranks each label among the labels of its example and the classes drawn in that
    step. So the value is too high: the true rank is never better. With other losses, the value
    is NaN.

    Args:
        k: Number of best classes to consider, from 1 to the number of classes. None, the
            default, considers all classes.
        absolute: True to rank by `|logit|`, False to rank by the logit. None, the default,
            uses the `ranking` of the layer, which the layer takes from its loss.
        name: Name of the metric. By default "mean_average_precision" or
            "mean_average_precision_at_{k}"; with "absolute_" before it if `absolute` is True.
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

    kind = "mean_average_precision"

    def hit_terms(self, ranked: RankedLabels) -> tuple[tf.Tensor, tf.Tensor]:
        ordered = tf.sort(tf.where(ranked.hits, ranked.ranks, tf.int64.max), axis=-1)
        positions = tf.range(1, tf.shape(ordered)[1] + 1)
        precisions = tf.cast(positions, tf.float64) / (1 + tf.cast(ordered, tf.float64))
        total = tf.reduce_sum(tf.where(ordered < ranked.k, precisions, 0), axis=-1)
        return tf.math.divide_no_nan(total, ranked.num_labels()), tf.ones_like(total)
