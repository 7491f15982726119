"""`CatalogCoverageAtK`."""

import keras
import tensorflow as tf

from tf_largeout.arguments import MOST_CLASSES, boolean, whole_number
from tf_largeout.metrics.macro_recall_at_k import require_same_classes
from tf_largeout.metrics.rank_metric import require_classes
from tf_largeout.metrics.tagged_metric import TaggedMetric
from tf_largeout.tags.output_tag import OutputTag
from tf_largeout.types import Config, DTypeLike


@keras.saving.register_keras_serializable(package="tf_largeout")
class CatalogCoverageAtK(TaggedMetric):
    """The share of classes that are among the k highest-scoring classes of some example.

    `coverage@k = #{classes that are among the k best of an example} / num_classes`: the catalog
    coverage of Ge et al. (2010), "Beyond accuracy: evaluating recommender systems by coverage
    and serendipity", and `ItemCoverage` in RecBole.

    It is exact in `evaluate`, and NaN in training. It needs one more pass over the classes. All
    metrics of this kind and `AveragePopularityAtK` share this pass if the metric with the
    largest k is the first in the list. The state takes 4 bytes per class.

    Args:
        k: Number of best classes to consider, from 1 to the number of classes.
        num_classes: Number of classes of the output layer.
        absolute: True to rank by `|logit|`, False to rank by the logit. None, the default,
            uses the `ranking` of the layer, which the layer takes from its loss.
        name: Name of the metric, "catalog_coverage_at_{k}" or
            "absolute_catalog_coverage_at_{k}" by default.
        dtype: Dtype of the result, as in `keras.metrics.Metric`.

    Call arguments:
        y_true: Integer class ids, as for the losses. The labels do not change the value, but
            examples without labels do not count. `with_exclude` adds classes that must not be
            ranked.
        y_pred: The direct output of an output layer of this library.
        sample_weight: Optional weights of the examples, aligned with their leading dimensions.
            Examples of weight 0 do not count.

    Raises:
        ValueError: If `k` or `num_classes` is not a positive integer, `k` exceeds the number of
            classes, `num_classes` is not that of the layer, `y_pred` is not the direct output
            of such a layer, or labels or weights do not match it.
    """

    def __init__(
        self,
        k: int,
        num_classes: int,
        absolute: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        default = f"{'absolute_' if absolute else ''}catalog_coverage_at_{k}"
        super().__init__(name=name or default, dtype=dtype)
        self.k = whole_number("k", k)
        self.num_classes = whole_number("num_classes", num_classes, most=MOST_CLASSES)
        self.absolute = boolean("absolute", absolute, or_none=True)
        self.times = self.add_variable(
            [self.num_classes], "zeros", dtype="float32", name="times"
        )

    def add_examples(
        self, tag: OutputTag, labels: tf.Tensor, valid: tf.Tensor, weights: tf.Tensor
    ) -> None:
        require_same_classes(self.num_classes, tag)
        require_classes(self.name, self.k, tag)
        best = tag.best_classes(labels, self.k, self.absolute)
        if best is None:
            self.skip_step(tag)
            return
        ids = tf.boolean_mask(best, (best >= 0) & (weights != 0)[:, tf.newaxis])
        times = tf.math.unsorted_segment_sum(tf.ones(tf.shape(ids)), ids, self.num_classes)
        self.times.assign_add(times)

    def result(self) -> tf.Tensor:
        is_covered = tf.convert_to_tensor(self.times) > 0
        number = tf.reduce_sum(tf.cast(is_covered, tf.float64))
        share = tf.where(number > 0, number / self.num_classes, float("nan"))
        return tf.cast(share, self.dtype)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "k": self.k,
            "num_classes": self.num_classes,
            "absolute": self.absolute,
        }
