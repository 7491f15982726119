"""`MacroRecallAtK`."""

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import MOST_CLASSES, boolean, whole_number
from tf_largeout.metrics.rank_metric import require_classes
from tf_largeout.metrics.tagged_metric import TaggedMetric, ratio
from tf_largeout.tags.output_tag import OutputTag
from tf_largeout.types import Config, DTypeLike


@keras.saving.register_keras_serializable(package="tf_largeout")
class MacroRecallAtK(TaggedMetric):
    """Macro-averaged R@k: the mean over classes of the recall of each class.

        macro R@k = mean over classes c that occur as labels of
                    #{examples where label c has rank < k} / #{examples with label c}

    Each class has the same weight, so rare classes count as much as frequent ones. With one
    label per example and k = 1, it is the balanced accuracy. See Schultheis et al. (2023),
    "Generalized test utilities for long-tail performance in extreme multi-label
    classification".

    It is exact in `evaluate`. In training it is NaN, because each step would take
    O(num_classes) time. The state takes 16 bytes per class.

    `class_recalls()` returns the recall of each class. Use it for the mean over rare classes:

    ```python
    recalls = metric.class_recalls()
    tail = np.nanmean(recalls[counts < 10])
    ```

    Args:
        k: Number of best classes to consider, from 1 to the number of classes.
        num_classes: Number of classes of the output layer.
        absolute: True to rank by `|logit|`, False to rank by the logit. None, the default,
            uses the `ranking` of the layer, which the layer takes from its loss.
        name: Name of the metric, "macro_recall_at_{k}" or "absolute_macro_recall_at_{k}" by
            default.
        dtype: Dtype of the result, as in `keras.metrics.Metric`. The sums are float64.

    Call arguments:
        y_true: Integer class ids, as for the losses: one per example, or several, padded with
            -1 or ragged. Repeated labels count once. `with_exclude` adds classes that must not
            be ranked.
        y_pred: The direct output of an output layer of this library.
        sample_weight: Optional weights of the examples, aligned with their leading dimensions.
            They weight the examples of each class.

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
        default = f"{'absolute_' if absolute else ''}macro_recall_at_{k}"
        super().__init__(name=name or default, dtype=dtype)
        self.k = whole_number("k", k)
        self.num_classes = whole_number("num_classes", num_classes, most=MOST_CLASSES)
        self.absolute = boolean("absolute", absolute, or_none=True)
        self.found = self._sums("found")
        self.occurring = self._sums("occurring")

    def add_examples(
        self, tag: OutputTag, labels: tf.Tensor, valid: tf.Tensor, weights: tf.Tensor
    ) -> None:
        require_same_classes(self.num_classes, tag)
        require_classes(self.name, self.k, tag)
        ranks = None if tag.training else tag.label_ranks(labels, self.absolute)
        if ranks is None:
            self.skip_step(tag)
            return
        places = tf.where(valid & (weights != 0)[:, tf.newaxis])
        ids, of_label = tf.gather_nd(labels, places), tf.gather(weights, places[:, 0])
        is_found = tf.cast(tf.gather_nd(ranks, places) < self.k, tf.float64)
        for total, added in ((self.found, of_label * is_found), (self.occurring, of_label)):
            total.assign_add(tf.math.unsorted_segment_sum(added, ids, self.num_classes))

    def class_recalls(self) -> np.ndarray:
        """Returns the recall of each class, float64 `[num_classes]`; NaN if it did not occur.

        The recall counts the examples since `reset_state`. Keras resets metrics before an
        evaluation.
        """
        return np.asarray(self._recalls())

    def result(self) -> tf.Tensor:
        recalls = self._recalls()
        has_recall = tf.convert_to_tensor(self.occurring) != 0
        total = tf.reduce_sum(tf.where(has_recall, recalls, 0))
        number = tf.reduce_sum(tf.cast(has_recall, tf.float64))
        return tf.cast(ratio(total, number), self.dtype)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "k": self.k,
            "num_classes": self.num_classes,
            "absolute": self.absolute,
        }

    def _recalls(self) -> tf.Tensor:
        return ratio(*map(tf.convert_to_tensor, (self.found, self.occurring)))

    def _sums(self, name: str) -> keras.Variable:
        return self.add_variable([self.num_classes], "zeros", dtype="float64", name=name)


def require_same_classes(num_classes: int, tag: OutputTag) -> None:
    """Raises a ValueError if a layer does not have `num_classes` classes."""
    if tag.num_classes != num_classes:
        raise ValueError(
            f"`num_classes` must be the number of classes of layer '{tag.layer.name}', "
            f"{tag.num_classes}. Received: num_classes={num_classes}."
        )
