"""`AveragePopularityAtK`."""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import boolean, whole_number
from tf_largeout.metrics.class_counts import checked_counts, require_counts_of
from tf_largeout.metrics.example_metric import ExampleMetric
from tf_largeout.metrics.rank_metric import require_classes
from tf_largeout.packed_arrays import pack, unpack
from tf_largeout.tags.output_tag import OutputTag
from tf_largeout.types import Config, DTypeLike


@keras.saving.register_keras_serializable(package="tf_largeout")
class AveragePopularityAtK(ExampleMetric):
    """The mean count of the k highest-scoring classes: their popularity in the training data.

    `mean over examples of (mean over the k best classes c of counts[c])`: the average
    recommendation popularity (ARP) of Yin et al. (2012), "Challenging the long tail
    recommendation", and `AveragePopularity` in RecBole. Lower values mean that the model ranks
    rare classes higher. If `exclude` leaves fewer than k classes, the mean is over those.

    It is exact in `evaluate`, and NaN in training. It needs one more pass over the classes. All
    metrics of this kind and `CatalogCoverageAtK` share this pass if the metric with the largest
    k is the first in the list.

    Args:
        k: Number of best classes to consider, from 1 to the number of classes.
        counts: How many training examples each class has: `[num_classes]`, whole numbers.
        absolute: True to rank by `|logit|`, False to rank by the logit. None, the default,
            uses the `ranking` of the layer, which the layer takes from its loss.
        name: Name of the metric, "average_popularity_at_{k}" or
            "absolute_average_popularity_at_{k}" by default.
        dtype: Dtype of the result, as in `keras.metrics.Metric`. The sums are float64.

    Call arguments:
        y_true: Integer class ids, as for the losses. The labels do not change the value, but
            examples without labels do not count. `with_exclude` adds classes that must not be
            ranked.
        y_pred: The direct output of an output layer of this library.
        sample_weight: Optional weights of the examples, aligned with their leading dimensions.

    The config contains the counts, compressed: Keras saves only the config of a compiled
    metric.

    Raises:
        ValueError: If `k` is not a positive integer or exceeds the number of classes, `counts`
            are not whole numbers, there is not one count per class, `y_pred` is not the direct
            output of such a layer, or labels or weights do not match it.
    """

    _direction = "down"

    def __init__(
        self,
        k: int,
        counts: np.ndarray | Sequence[int],
        absolute: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        default = f"{'absolute_' if absolute else ''}average_popularity_at_{k}"
        super().__init__(name=name or default, dtype=dtype)
        self.k = whole_number("k", k)
        self.counts = checked_counts(counts)
        self.absolute = boolean("absolute", absolute, or_none=True)
        with tf.init_scope():
            self._counts = tf.constant(self.counts, tf.float64)

    def example_terms(
        self, tag: OutputTag, labels: tf.Tensor, valid: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor] | None:
        require_counts_of(self.counts, tag)
        require_classes(self.name, self.k, tag)
        best = tag.best_classes(labels, self.k, self.absolute)
        if best is None:
            return None
        counts = tf.where(best >= 0, tf.gather(self._counts, tf.maximum(best, 0)), 0)
        number = tf.reduce_sum(tf.cast(best >= 0, tf.float64), axis=-1)
        means = tf.math.divide_no_nan(tf.reduce_sum(counts, axis=-1), number)
        return means, tf.ones_like(means)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "k": self.k,
            "counts": pack(self.counts),
            "absolute": self.absolute,
        }

    @classmethod
    def from_config(cls, config: Config) -> "AveragePopularityAtK":
        return cls(**{**config, "counts": unpack(config["counts"], "<i8")})
