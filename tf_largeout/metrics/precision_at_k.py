"""`PrecisionAtK`."""

import keras
import tensorflow as tf

from tf_largeout.metrics.rank_metric import RankedLabels, RankMetric


@keras.saving.register_keras_serializable(package="tf_largeout")
class PrecisionAtK(RankMetric):
    """P@k: the share of labels among the k highest-scoring classes.

    `P@k = mean over examples of #{labels with rank < k} / k`, where the best class has rank 0.
    The divisor is k even if an example has fewer than k labels, as in the extreme
    classification repository (Bhatia et al. 2016). With one label per example, P@1 is the
    accuracy.

    It is exact in `evaluate`, and in training with an exact loss. In training with a sampled
    loss, it ranks each label among the labels of its example and the classes drawn in that
    step. So the value is too high: the true rank is never better. With other losses, the value
    is NaN.

    Args:
        k: Number of best classes to consider, from 1 to the number of classes.
        absolute: True to rank by `|logit|`, False to rank by the logit. None, the default,
            uses the `ranking` of the layer, which the layer takes from its loss.
        name: Name of the metric, "precision_at_{k}" or "absolute_precision_at_{k}" by default.
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

    Example:

    ```python
    model.compile(
        loss=tflo.losses.SampledSoftmaxLoss(),
        metrics=[tflo.metrics.PrecisionAtK(1), tflo.metrics.PrecisionAtK(5)],
    )
    ```
    """

    kind = "precision"

    def hit_terms(self, ranked: RankedLabels) -> tuple[tf.Tensor, tf.Tensor]:
        found = ranked.num_hits()
        return found / ranked.k, tf.ones_like(found)
