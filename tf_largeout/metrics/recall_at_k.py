"""`RecallAtK`."""

import keras
import tensorflow as tf

from tf_largeout.metrics.rank_metric import RankedLabels, RankMetric


@keras.saving.register_keras_serializable(package="tf_largeout")
class RecallAtK(RankMetric):
    """R@k: the share of an example's labels that are among the k highest-scoring classes.

    `R@k = mean over examples with labels of #{labels with rank < k} / #labels`, where the best
    class has rank 0.

    It is exact in `evaluate`, and in training with an exact loss. In training with a sampled
    loss, it ranks each label among the labels of its example and the classes drawn in that
    step. So the value is too high: the true rank is never better. With other losses, the value
    is NaN.

    Args:
        k: Number of best classes to consider, from 1 to the number of classes.
        absolute: True to rank by `|logit|`, False to rank by the logit. None, the default,
            uses the `ranking` of the layer, which the layer takes from its loss.
        name: Name of the metric, "recall_at_{k}" or "absolute_recall_at_{k}" by default.
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

    kind = "recall"

    def hit_terms(self, ranked: RankedLabels) -> tuple[tf.Tensor, tf.Tensor]:
        found = ranked.num_hits()
        return tf.math.divide_no_nan(found, ranked.num_labels()), tf.ones_like(found)
