"""`PrecisionAtK`."""

import keras
import tensorflow as tf

from tf_largeout.metrics.rank_metric import RankMetric


@keras.saving.register_keras_serializable(package="tf_largeout")
class PrecisionAtK(RankMetric):
    """P@k: the share of labels among the k classes that score highest.

    `P@k = mean over rows of #{labels with rank < k} / k`, also for rows with fewer than k
    labels, as in the extreme classification repository (Bhatia et al. 2016). With one label per
    row, P@1 is accuracy.

    Exact in `evaluate`, and in training with an exact loss. In training with a sampled loss it
    ranks each label among the labels of its row and the classes drawn in that step, which is
    optimistic: the true rank is never better. With a loss that draws none it is NaN.

    Args:
        k: How many of the best classes count, from 1 to the number of classes.
        absolute: True for the best by `|logit|`, False for the best by logit. None, the
            default, for the `ranking` of the layer, which is that of its loss.
        name: Name of the metric, "precision_at_{k}" or "absolute_precision_at_{k}" by default.
        dtype: Type of the result, as in `keras.metrics.Metric`. (The sums are float64.)

    Call arguments:
        y_true: Integer class ids as the losses take them: one per row, or several, padded with
            -1 or ragged. A class that is given twice counts once; a row without labels has
            weight 0.
        y_pred: The direct output of an output layer of ours.
        sample_weight: Optional weights of the rows, aligned with their dimensions in front.

    Raises:
        ValueError: If `k` is no positive integer or above the number of classes, `y_pred` is no
            direct output of such a layer, or labels or weights do not fit it.

    Example:

    ```python
    model.compile(
        loss=tflo.losses.SampledSoftmaxLoss(),
        metrics=[tflo.metrics.PrecisionAtK(1), tflo.metrics.PrecisionAtK(5)],
    )
    ```
    """

    kind = "precision"

    def hit_terms(
        self, hits: tf.Tensor, labels: tf.Tensor, valid: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        found = tf.reduce_sum(tf.cast(hits, tf.float64), axis=-1)
        return found / self.k, tf.ones_like(found)
