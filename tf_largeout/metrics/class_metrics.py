"""Metrics of classes: how popular the found ones are, how many, and the recall of each."""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.arguments import MOST_CLASSES, pack, real_number, whole_number
from tf_largeout.metrics.rank_metrics import AtK, ExampleMetric, RankedLabels, RankMetric, ratio
from tf_largeout.steps.step import Step
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

    The other arguments, its calls and its value in training are those of `PrecisionAtK`.

    Args:
        counts: How many training examples each class has: `[num_classes]`, whole numbers.
        num_examples: Number of training examples, at least 3. None if each example has one
            label: the number is then the sum of the counts, and an example with several labels
            is an error.
        a: Exponent of the propensity model, at least 0. The paper uses 0.55 for most data sets,
            0.5 for Wikipedia and 0.6 for Amazon.
        b: Offset of the counts in the propensity model, above 0. The paper uses 1.5 for most
            data sets, 0.4 for Wikipedia and 2.6 for Amazon.
        name: By default "psp_at_{k}" or "absolute_psp_at_{k}".

    The config contains the counts in compressed form, because Keras saves only the config of a
    metric that is passed to `compile`.

    Raises:
        ValueError: As for `PrecisionAtK`, or if there is not one count per class.
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

    def example_terms(self, step: Step, valid: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor] | None:
        require_counts_of(self.counts, step)
        if self.num_examples is None:
            most = tf.reduce_max(tf.reduce_sum(tf.cast(valid, tf.int32), axis=-1))
            message = (
                f"Metric '{self.name}' was made without `num_examples`, the number of training "
                "examples. The sum of `counts` equals it only if each example has one label. "
                "Pass `num_examples`. Received an example whose number of labels is"
            )
            most_is_1 = checks.require(most <= 1, [message, most])
            found = super().example_terms(step, valid)
            return found and tuple(checks.passed([most_is_1], one) for one in found)
        return super().example_terms(step, valid)

    def get_config(self) -> Config:
        named = {"num_examples": self.num_examples, "a": self.a, "b": self.b}
        return {**super().get_config(), "counts": pack(self.counts), **named}


@keras.saving.register_keras_serializable(package="tf_largeout")
class AveragePopularityAtK(AtK, ExampleMetric):
    """The mean count of the k highest-scoring classes: their popularity in the training data.

    `mean over examples of (mean over the k best classes c of counts[c])`: the average
    recommendation popularity (ARP) of Yin et al. (2012), "Challenging the long tail
    recommendation", and `AveragePopularity` in RecBole. Lower values mean that the model ranks
    rare classes higher. If `exclude` leaves fewer than k classes, the mean is over those.

    It is exact in `evaluate`, and NaN in training. It needs one more pass over the classes. All
    metrics of this kind and `CatalogCoverageAtK` share this pass if the metric with the largest
    k is the first in the list.

    The other arguments, its calls and errors are those of `PrecisionAtK`. Labels do not change
    the value, but examples without labels do not count.

    Args:
        counts: How many training examples each class has: `[num_classes]`, whole numbers.
            Others raise a ValueError.
    """

    kind = "average_popularity"
    _direction = "down"

    def __init__(
        self,
        k: int,
        counts: np.ndarray | Sequence[int],
        absolute: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(k, absolute, name=name, dtype=dtype)
        self.counts = checked_counts(counts)
        with tf.init_scope():
            self._counts = tf.constant(self.counts, tf.float64)

    def example_terms(self, step: Step, valid: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor] | None:
        require_counts_of(self.counts, step)
        best = step.best_classes(self.k_of(step), self.absolute)
        if best is None:
            return None
        counts = tf.where(best >= 0, tf.gather(self._counts, tf.maximum(best, 0)), 0)
        number = tf.reduce_sum(tf.cast(best >= 0, tf.float64), axis=-1)
        means = tf.math.divide_no_nan(tf.reduce_sum(counts, axis=-1), number)
        return means, tf.ones_like(means)

    def get_config(self) -> Config:
        return {**super().get_config(), "counts": pack(self.counts)}


class PerClass(AtK):
    """A metric with states for each class; see `MacroRecallAtK` for its arguments."""

    _states: dict[str, str]  # names of the variables and their dtypes

    def __init__(
        self,
        k: int,
        num_classes: int,
        absolute: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(k, absolute, name=name, dtype=dtype)
        self.num_classes = whole_number("num_classes", num_classes, most=MOST_CLASSES)
        for one, dtype in self._states.items():
            setattr(self, one, self.add_variable([num_classes], "zeros", dtype=dtype, name=one))

    def k_of(self, step: Step) -> int:
        if step.num_classes != self.num_classes:
            raise ValueError(
                f"`num_classes` must be the number of classes of layer '{step.layer_name}', "
                f"{step.num_classes}. Received: num_classes={self.num_classes}."
            )
        return super().k_of(step)

    def get_config(self) -> Config:
        return {**super().get_config(), "num_classes": self.num_classes}


@keras.saving.register_keras_serializable(package="tf_largeout")
class CatalogCoverageAtK(PerClass):
    """The share of classes that are among the k highest-scoring classes of some example.

    `coverage@k = #{classes that are among the k best of an example} / num_classes`: the catalog
    coverage of Ge et al. (2010), "Beyond accuracy: evaluating recommender systems by coverage
    and serendipity", and `ItemCoverage` in RecBole.

    Its value in training and its pass over the classes are those of `AveragePopularityAtK`. The
    state takes 4 bytes per class. The other arguments, its calls and errors are those of
    `PrecisionAtK`. Labels do not change the value, but examples without labels, or with a
    `sample_weight` of 0, do not count.

    Args:
        num_classes: Number of classes of the output layer; others raise a ValueError.
    """

    kind = "catalog_coverage"
    _states = {"times": "float32"}
    times: keras.Variable

    def add_examples(self, step: Step, valid: tf.Tensor, weights: tf.Tensor) -> None:
        best = step.best_classes(self.k_of(step), self.absolute)
        if best is None:
            self.skip_step(step)
            return
        ids = tf.where((weights != 0)[:, tf.newaxis], best, -1)  # -1 is left out of the sum
        times = tf.math.unsorted_segment_sum(tf.ones(tf.shape(ids)), ids, self.num_classes)
        self.times.assign_add(times)

    def result(self) -> tf.Tensor:
        is_covered = tf.convert_to_tensor(self.times) > 0
        number = tf.reduce_sum(tf.cast(is_covered, tf.float64))
        share = tf.where(number > 0, number / self.num_classes, float("nan"))
        return tf.cast(share, self.dtype)


@keras.saving.register_keras_serializable(package="tf_largeout")
class MacroRecallAtK(PerClass):
    """Macro-averaged R@k: the mean over classes of the recall of each class.

        macro R@k = mean over classes c that occur as labels of
                    #{examples where label c has rank < k} / #{examples with label c}

    Each class has the same weight, so rare classes count as much as frequent ones. With one
    label per example and k = 1, it is the balanced accuracy. See Schultheis et al. (2023),
    "Generalized test utilities for long-tail performance in extreme multi-label
    classification".

    It is exact in `evaluate`. In training it is NaN, because each step would take
    O(num_classes) time. The state takes 16 bytes per class. `class_recalls()` returns the
    recall of each class. Use it for the mean over rare classes:

    ```python
    recalls = metric.class_recalls()
    tail = np.nanmean(recalls[counts < 10])
    ```

    The other arguments, its calls and errors are those of `PrecisionAtK`. A `sample_weight`
    weights the examples of each class.

    Args:
        num_classes: Number of classes of the output layer; others raise a ValueError.
    """

    kind = "macro_recall"
    _states = {"found": "float64", "occurring": "float64"}
    found: keras.Variable
    occurring: keras.Variable

    def add_examples(self, step: Step, valid: tf.Tensor, weights: tf.Tensor) -> None:
        k = self.k_of(step)
        ranks = None if step.training else step.label_ranks(self.absolute)
        if ranks is None:
            self.skip_step(step)
            return
        counts = valid & (weights != 0)[:, tf.newaxis]
        ids = tf.where(counts, step.labels.ids, -1)  # -1 is left out of the sums
        of_label = tf.broadcast_to(weights[:, tf.newaxis], tf.shape(ids))
        is_found = tf.cast(ranks < k, tf.float64)
        for total, added in ((self.found, of_label * is_found), (self.occurring, of_label)):
            total.assign_add(tf.math.unsorted_segment_sum(added, ids, self.num_classes))

    def class_recalls(self) -> np.ndarray:
        """Returns the recall of each class, float64 `[num_classes]`; NaN if it did not occur.

        It counts the examples since `reset_state`, which Keras calls before an evaluation.
        """
        return np.asarray(ratio(self.found, self.occurring))

    def result(self) -> tf.Tensor:
        recalls = ratio(self.found, self.occurring)
        has_recall = tf.convert_to_tensor(self.occurring) != 0
        total = tf.reduce_sum(tf.where(has_recall, recalls, 0))
        number = tf.reduce_sum(tf.cast(has_recall, tf.float64))
        return tf.cast(ratio(total, number), self.dtype)


def checked_counts(counts: np.ndarray | Sequence[int]) -> np.ndarray:
    """Returns the argument as int64 `[num_classes]`, or raises a ValueError."""
    counts = np.asarray(counts)
    if counts.ndim != 1 or counts.size == 0 or counts.dtype.kind not in "iuf":
        raise ValueError(
            "`counts` must be a list of numbers, one per class. Received an array of shape "
            f"{counts.shape} and dtype {counts.dtype}."
        )
    if not np.all(np.isfinite(counts)) or counts.min() < 0:
        raise ValueError(
            f"`counts` must be finite and not negative. Received the minimum {counts.min()}."
        )
    broken = counts[counts != np.floor(counts)]
    if broken.size:
        raise ValueError(
            "`counts` must be whole numbers: how many training examples a class has. Received "
            f"{broken[0]}."
        )
    return counts.astype("<i8")


def require_counts_of(counts: np.ndarray, step: Step) -> None:
    """Raises a ValueError unless a layer has as many classes as there are counts."""
    if step.num_classes != len(counts):
        raise ValueError(
            f"`counts` must have one number for each of the {step.num_classes} classes of "
            f"layer '{step.layer_name}'. Received: {len(counts)} counts."
        )
