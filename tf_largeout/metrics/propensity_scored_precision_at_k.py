"""`PropensityScoredPrecisionAtK`."""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.arguments import real_number, whole_number
from tf_largeout.metrics.class_counts import checked_counts, require_counts_of
from tf_largeout.metrics.rank_metric import RankedLabels, RankMetric
from tf_largeout.packed_arrays import pack, unpack
from tf_largeout.tags.output_tag import OutputTag
from tf_largeout.types import Config, DTypeLike


@keras.saving.register_keras_serializable(package="tf_largeout")
class PropensityScoredPrecisionAtK(RankMetric):
    """PSP@k: precision with more weight for rare classes, divided by its best value.

        PSP@k = sum_examples sum_{labels l with rank < k} 1 / p_l
                / sum_examples (sum of the k largest 1 / p_l among the labels)
        1 / p_l = 1 + C (N_l + b)^-a,    C = (log N - 1) (b + 1)^a

    where `N_l` is the number of training examples with label l, and `N` the number of all
    training examples (Jain et al. 2016, "Extreme multi-label loss functions", section 3 and
    equation 4.1; the ratio of sums follows the extreme classification repository).

    It is exact in `evaluate`, and in training with an exact loss. In training with a sampled
    loss, it ranks each label among the labels of its example and the classes drawn in that
    step. So the value is too high: the true rank is never better. With other losses, the value
    is NaN.

    Args:
        k: Number of best classes to consider, from 1 to the number of classes.
        counts: How many training examples each class has: `[num_classes]`, whole numbers.
        num_examples: Number of training examples, at least 3. None if each example has one
            label: the number is then the sum of the counts, and an example with several labels
            is an error.
        a: Exponent of the propensity model, at least 0. The paper uses 0.55 for most data sets,
            0.5 for Wikipedia and 0.6 for Amazon.
        b: Offset of the counts in the propensity model, above 0. The paper uses 1.5 for most
            data sets, 0.4 for Wikipedia and 2.6 for Amazon.
        absolute: True to rank by `|logit|`, False to rank by the logit. None, the default,
            uses the `ranking` of the layer, which the layer takes from its loss.
        name: Name of the metric, "psp_at_{k}" or "absolute_psp_at_{k}" by default.
        dtype: Dtype of the result, as in `keras.metrics.Metric`. The sums are float64.

    Call arguments:
        y_true: Integer class ids, as for the losses: one per example, or several, padded with
            -1 or ragged. Repeated labels count once. An example without labels has weight 0.
            `with_exclude` adds classes that must not be ranked.
        y_pred: The direct output of an output layer of this library.
        sample_weight: Optional weights of the examples, aligned with their leading dimensions.

    The config contains the counts in compressed form, because Keras saves only the config of a
    metric that is passed to `compile`.

    Raises:
        ValueError: If an argument is out of range, there is not one count per class, `y_pred`
            is not the direct output of such a layer, or labels or weights do not match it.
        tf.errors.InvalidArgumentError: If `num_examples` is None and an example has several
            labels.
    """

    kind = "psp"

    def __init__(
        self,
        k: int,
        counts: np.ndarray | Sequence[int],
        num_examples: int | None = None,
        a: float = 0.55,
        b: float = 1.5,
        absolute: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(k, absolute, name=name, dtype=dtype)
        self.counts = checked_counts(counts)
        self.num_examples = whole_number("num_examples", num_examples, or_none=True)
        total = int(self.counts.sum()) if self.num_examples is None else self.num_examples
        if total < 3:
            raise ValueError(
                "`num_examples`, by default the sum of `counts`, must be at least 3 for "
                f"propensities to be below 1. Received: {total}."
            )
        self.a = real_number("a", a, least=0)
        self.b = real_number("b", b, least=0, allow_least=False)
        scale = (np.log(total) - 1) * (self.b + 1) ** self.a
        with tf.init_scope():
            self._inverse = tf.constant(
                1 + scale * (self.counts + self.b) ** -self.a, tf.float32
            )

    def hit_terms(self, ranked: RankedLabels) -> tuple[tf.Tensor, tf.Tensor]:
        inverse = tf.gather(self._inverse, tf.maximum(ranked.labels, 0))
        inverse = tf.where(ranked.valid, inverse, 0)
        best = tf.math.top_k(inverse, tf.minimum(ranked.k, tf.shape(inverse)[1])).values
        return ranked.sum_over_hits(inverse), tf.reduce_sum(best, axis=-1)

    def example_terms(
        self, tag: OutputTag, labels: tf.Tensor, valid: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor] | None:
        require_counts_of(self.counts, tag)
        valid = checks.passed(self._label_checks(valid), valid)
        return super().example_terms(tag, labels, valid)

    def _label_checks(self, valid: tf.Tensor) -> list[tf.Operation | None]:
        if self.num_examples is not None:
            return []
        most = tf.reduce_max(tf.reduce_sum(tf.cast(valid, tf.int32), axis=-1))
        message = (
            f"Metric '{self.name}' was made without `num_examples`, the number of training "
            "examples. The sum of `counts` equals it only if each example has one label. Pass "
            "`num_examples`. Received an example whose number of labels is"
        )
        return [checks.require(most <= 1, [message, most])]

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "counts": pack(self.counts),
            "num_examples": self.num_examples,
            "a": self.a,
            "b": self.b,
        }

    @classmethod
    def from_config(cls, config: Config) -> "PropensityScoredPrecisionAtK":
        return cls(**{**config, "counts": unpack(config["counts"], "<i8")})
