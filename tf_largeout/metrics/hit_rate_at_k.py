"""`HitRateAtK`."""

import keras
import tensorflow as tf

from tf_largeout.metrics.rank_metric import RankedLabels, RankMetric


@keras.saving.register_keras_serializable(package="tf_largeout")
class HitRateAtK(RankMetric):
    """HR@k: the share of examples with a label among the k highest-scoring classes.

    `HR@k = mean over examples with labels of [some label has rank < k]`. With one label per
    example, it equals `RecallAtK`.

    It is exact in `evaluate`, and in training with an exact loss. In training with a sampled
    loss, it ranks each label among the labels of its example and the classes drawn in that
    step. So the value is too high: the true rank is never better. With other losses, the value
    is NaN.

    Args:
        k: Number of best classes to consider, from 1 to the number of classes.
        absolute: True to rank by `|logit|`, False to rank by the logit. None, the default,
            uses the `ranking` of the layer, which the layer takes from its loss.
        name: Name of the metric, "hit_rate_at_{k}" or "absolute_hit_rate_at_{k}" by default.
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

    kind = "hit_rate"

    def hit_terms(self, ranked: RankedLabels) -> tuple[tf.Tensor, tf.Tensor]:
        hits = tf.cast(tf.reduce_any(ranked.hits, axis=-1), tf.float64)
        return hits, tf.ones_like(hits)
