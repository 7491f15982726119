"""The base classes of the metrics, perplexity, and the metrics of the ranks of labels."""

import logging
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.arguments import boolean, too_large_k, unpack, whole_number
from tf_largeout.keras_internals import mask_of, running_step
from tf_largeout.steps.labels import per_example
from tf_largeout.steps.output_tag import OutputTag, tag_of
from tf_largeout.steps.step import Step
from tf_largeout.types import Config, DTypeLike, TensorLike
from tf_largeout.wrong_arguments import OF_METRICS, refuse_wrong_arguments_of


class TaggedMetric(keras.metrics.Metric):
    """A metric that uses the tag of an output layer, not its logits.

    It handles labels, masks and weights. A subclass defines `add_examples` and `result`.

    In `evaluate`, metrics and loss share one exact pass over the classes. In training, metrics
    do no work that grows with the number of classes; each metric documents its value in
    training.

    Call arguments and errors are those of `PrecisionAtK`. Of sparse targets, the classes with a
    value above 0 are the labels.
    """

    _direction = "up"  # Keras's callbacks with mode "auto" look for larger values
    _is_unknown_in_training = False
    _has_warned_of_monitors = False

    def __new__(cls, *args: Any, **kwargs: Any) -> "TaggedMetric":
        refuse_wrong_arguments_of(cls, kwargs, OF_METRICS)
        return super().__new__(cls)

    def add_examples(self, step: Step, valid: tf.Tensor, weights: tf.Tensor) -> None:
        """Adds the `B` examples of a step to the state, or calls `skip_step`.

        `valid`, bool `[B, L]`, is False at padding and at repeats of a label. `weights`,
        float64 `[B]`, are 0 for examples that are masked or have no label.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `add_examples`.")

    def update_state(
        self, y_true: TensorLike, y_pred: tf.Tensor, sample_weight: TensorLike | None = None
    ) -> None:
        tag = tag_of(y_pred, type(self).__name__)
        if tag is None:
            return
        try:
            labels = tag.labels(y_true)
        except ValueError as error:
            raise ValueError(f"Metric '{self.name}' cannot use its labels. {error}") from error
        weights, counted, mask = tf.ones([], tf.float64), labels.counted, mask_of(y_pred)
        if mask is not None:
            counted &= _flat(mask, tag, "bool")
        if sample_weight is not None:
            weights = _flat(sample_weight, tag, "float64")
        weights = tf.where(counted, weights, 0)
        if tf.inside_function() and running_step().is_compiled:  # which cannot raise errors
            weights = checks.valid_only_if(tag.are_valid(labels), weights)
        if tag.training:
            self._is_unknown_in_training = False
        selected = tag.step(labels, labels.counted)
        step = selected.step
        if selected.rows is not None:
            weights = selected.rows.take(weights)
        self.add_examples(step, step.distinct_labels, weights)

    def skip_step(self, step: Step) -> None:
        """Must be called in a step that cannot compute the metric; warns of monitors of it."""
        if step.training:
            self._is_unknown_in_training = True
            self._warn_of_monitors()

    def reset_state(self) -> None:
        # A later `fit` may have other callbacks than the one that traced the step.
        if self._is_unknown_in_training:
            self._warn_of_monitors()
        super().reset_state()

    def _warn_of_monitors(self) -> None:
        callback = running_step().monitored.get(self.name)
        if callback is None or self._has_warned_of_monitors:
            return
        self._has_warned_of_monitors = True
        logging.getLogger("tf_largeout").warning(
            "%s monitors '%s', which is NaN in training with this loss, because its value is "
            "not known there. A NaN never counts as an improvement, so EarlyStopping ends "
            "training after `patience` epochs. Pass `validation_data` to `fit` and monitor "
            "'val_%s', or use tf_largeout.callbacks.ExactMetrics and monitor 'exact_%s'.",
            callback,
            *[self.name] * 3,
        )


class ExampleMetric(TaggedMetric):
    """A weighted ratio of two sums over the examples of all batches.

    Subclasses define `example_terms`. The sums are float64, which is exact for counts far above
    2^24. An example of weight 0 adds nothing, even if its terms are NaN. If no step could
    compute the metric, or the weights add up to 0, the result is NaN.
    """

    def __init__(self, name: str | None = None, dtype: DTypeLike | None = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.numerator, self.denominator = (
            self.add_variable((), "zeros", dtype="float64", name=one)
            for one in ("numerator", "denominator")
        )

    def example_terms(self, step: Step, valid: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor] | None:
        """Returns what each example adds to the two sums, two tensors that broadcast to `[B]`.

        The arguments are those of `add_examples`. None if this step cannot compute them.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `example_terms`.")

    def add_examples(self, step: Step, valid: tf.Tensor, weights: tf.Tensor) -> None:
        terms = self.example_terms(step, valid)
        if terms is None:
            self.skip_step(step)
            return
        for total, term in zip((self.numerator, self.denominator), terms, strict=True):
            weighted = tf.where(weights != 0, weights * tf.cast(term, tf.float64), 0)
            total.assign_add(tf.reduce_sum(weighted))

    def result(self) -> tf.Tensor:
        return tf.cast(ratio(self.numerator, self.denominator), self.dtype)


def ratio(numerator: TensorLike, denominator: TensorLike) -> tf.Tensor:
    """Returns the quotients, NaN where the denominator is 0, for float64 numbers."""
    numerator, denominator = map(tf.convert_to_tensor, (numerator, denominator))
    nothing = tf.constant(float("nan"), tf.float64)
    return tf.where(denominator == 0, nothing, numerator / denominator)


def _flat(weights: TensorLike, tag: OutputTag, dtype: str) -> tf.Tensor:
    return tf.reshape(per_example(weights, tag.features, dtype), [-1])


@keras.saving.register_keras_serializable(package="tf_largeout")
class Perplexity(ExampleMetric):
    """The exponential of the mean exact cross entropy.

    `exp(mean over examples of (log(sum_c exp(o_c)) - mean over labels y of o_y))`.

    It is exact in `evaluate`. In training, it is exact with an exact loss, because it uses the
    probabilities that the loss computes. In training with a sampled loss, it is NaN.

    Args:
        absolute: True for the softmax of `|o_c|`, False for the softmax of `o_c`. None, the
            default, uses the probabilities of the loss that the model is compiled with. For
            `TaylorSoftmaxLoss` and `SphericalSoftmaxLoss`, the loss defines the probabilities.
            For `AbsoluteSoftmaxLoss`, they are the softmax of `|o_c|`, and for other losses the
            softmax of `o_c`.
        name: Name of the metric, "perplexity" or "absolute_perplexity" by default.
        dtype: Dtype of the result. The sums are float64.

    Its calls are those of `PrecisionAtK`; classes that are excluded change nothing.
    """

    _direction = "down"

    def __init__(
        self,
        absolute: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        default = "absolute_perplexity" if absolute else "perplexity"
        super().__init__(name=name or default, dtype=dtype)
        self.absolute = boolean("absolute", absolute, or_none=True)

    def example_terms(self, step: Step, valid: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor] | None:
        losses = step.known_cross_entropies(self.absolute)
        return None if losses is None else (losses, tf.ones_like(losses))

    def result(self) -> tf.Tensor:
        return tf.cast(tf.exp(ratio(self.numerator, self.denominator)), self.dtype)

    def get_config(self) -> Config:
        return {**super().get_config(), "absolute": self.absolute}


class AtK(TaggedMetric):
    """A metric of the k best classes. The arguments are those of `PrecisionAtK`.

    A subclass that is also an `ExampleMetric` names `AtK` first.
    """

    kind = "hits"  # the default name is "{kind}_at_{k}"
    k_or_none = False  # whether `k` may be None, for all classes

    def __init__(
        self,
        k: int | None,
        absolute: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        at_k = "" if k is None else f"_at_{k}"
        default = f"{'absolute_' if absolute else ''}{self.kind}{at_k}"
        super().__init__(name=name or default, dtype=dtype)
        self.k = None if k is None and self.k_or_none else whole_number("k", k)
        self.absolute = boolean("absolute", absolute, or_none=True)

    def k_of(self, step: Step) -> int:
        """Returns k, for None the number of classes. Raises a ValueError if k is above that."""
        num_classes = step.classes.num_classes
        if self.k is not None and self.k > num_classes:
            raise too_large_k(self.k, num_classes, self.name, step.layer_name)
        return num_classes if self.k is None else self.k

    def get_config(self) -> Config:
        return {**super().get_config(), "k": self.k, "absolute": self.absolute}

    @classmethod
    def from_config(cls, config: Config) -> "AtK":
        if isinstance(config.get("counts"), str):
            config = {**config, "counts": unpack(config["counts"], "<i8")}
        return cls(**config)


class RankedLabels(NamedTuple):
    """The labels of `B` examples and their ranks, `[B, L]`."""

    labels: tf.Tensor  # int64, padded with -1
    valid: tf.Tensor  # bool, False at padding and at repeats of a label
    ranks: tf.Tensor  # int64, 0 for the best class
    hits: tf.Tensor  # bool, the valid labels among the k best classes
    k: int  # the number of all classes if the metric has no `k`

    def num_labels(self) -> tf.Tensor:
        """Returns float64 `[B]`, the number of valid labels."""
        return tf.reduce_sum(tf.cast(self.valid, tf.float64), axis=-1)

    def num_hits(self) -> tf.Tensor:
        """Returns float64 `[B]`, the number of hits."""
        return tf.reduce_sum(tf.cast(self.hits, tf.float64), axis=-1)

    def sum_over_hits(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the sum of `values`, `[B, L]`, over the hits, `[B]`."""
        return tf.reduce_sum(tf.where(self.hits, values, 0), axis=-1)


class RankMetric(AtK, ExampleMetric):
    """A metric of the labels with ranks below k. Subclasses define `hit_terms`."""

    def hit_terms(self, ranked: RankedLabels) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the `example_terms`."""
        raise NotImplementedError(f"{type(self).__name__} must define `hit_terms`.")

    def example_terms(self, step: Step, valid: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor] | None:
        k = self.k_of(step)
        ranks = step.label_ranks(self.absolute)
        if ranks is None:
            return None
        hits = valid & (ranks < k)
        return self.hit_terms(RankedLabels(step.labels.ids, valid, ranks, hits, k))


class FullRankMetric(RankMetric):
    """A `RankMetric` that considers all classes if `k` is None, the default."""

    k_or_none = True

    def __init__(
        self,
        k: int | None = None,
        absolute: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(k, absolute, name=name, dtype=dtype)


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


@keras.saving.register_keras_serializable(package="tf_largeout")
class RecallAtK(RankMetric):
    """R@k: the share of an example's labels that are among the k highest-scoring classes.

    `R@k = mean over examples with labels of #{labels with rank < k} / #labels`, where the best
    class has rank 0. See `PrecisionAtK` for its arguments, calls and value in training.
    """

    kind = "recall"

    def hit_terms(self, ranked: RankedLabels) -> tuple[tf.Tensor, tf.Tensor]:
        found = ranked.num_hits()
        return tf.math.divide_no_nan(found, ranked.num_labels()), tf.ones_like(found)


@keras.saving.register_keras_serializable(package="tf_largeout")
class HitRateAtK(RankMetric):
    """HR@k: the share of examples with a label among the k highest-scoring classes.

    `HR@k = mean over examples with labels of [some label has rank < k]`. With one label per
    example, it equals `RecallAtK`. See `PrecisionAtK` for its arguments, calls and value in
    training.
    """

    kind = "hit_rate"

    def hit_terms(self, ranked: RankedLabels) -> tuple[tf.Tensor, tf.Tensor]:
        hits = tf.cast(tf.reduce_any(ranked.hits, axis=-1), tf.float64)
        return hits, tf.ones_like(hits)


@keras.saving.register_keras_serializable(package="tf_largeout")
class MeanReciprocalRank(FullRankMetric):
    """MRR: the mean of 1 / (position of the first label among the ranked classes).

    `MRR@k = mean over examples with labels of 1 / (1 + r)`, where r is the rank of the best
    label, starting at 0; the term is 0 if r is not below k. It equals
    `keras_rs.metrics.MeanReciprocalRank`. With `k=None`, the default, it considers all classes.
    See `PrecisionAtK` for its other arguments, calls and value in training.
    """

    kind = "mean_reciprocal_rank"

    def hit_terms(self, ranked: RankedLabels) -> tuple[tf.Tensor, tf.Tensor]:
        reciprocals = 1 / (1 + tf.cast(ranked.ranks, tf.float64))
        padded = tf.pad(tf.where(ranked.hits, reciprocals, 0), [[0, 0], [0, 1]])
        best = tf.reduce_max(padded, axis=-1)  # 0 for an example without labels
        return best, tf.ones_like(best)


@keras.saving.register_keras_serializable(package="tf_largeout")
class MeanAveragePrecision(FullRankMetric):
    """MAP: the mean over labels of the precision down to the label's position.

        MAP@k = mean over examples of (1 / #labels) sum_{labels with rank r < k} P@(r + 1)

    where ranks start at 0, and `P@n` is the share of the n best classes that are labels. The
    divisor is the number of all labels, as in `keras_rs.metrics.MeanAveragePrecision` and
    Manning et al. (2008), "Introduction to Information Retrieval", section 8.4. Some libraries
    divide MAP@k by `min(k, #labels)` instead. With `k=None`, the default, it considers all
    classes. See `PrecisionAtK` for its other arguments, calls and value in training.
    """

    kind = "mean_average_precision"

    def hit_terms(self, ranked: RankedLabels) -> tuple[tf.Tensor, tf.Tensor]:
        ordered = tf.sort(tf.where(ranked.hits, ranked.ranks, tf.int64.max), axis=-1)
        positions = tf.range(1, tf.shape(ordered)[1] + 1)
        precisions = tf.cast(positions, tf.float64) / (1 + tf.cast(ordered, tf.float64))
        total = tf.reduce_sum(tf.where(ordered < ranked.k, precisions, 0), axis=-1)
        return tf.math.divide_no_nan(total, ranked.num_labels()), tf.ones_like(total)


@keras.saving.register_keras_serializable(package="tf_largeout")
class NDCG(FullRankMetric):
    """Normalized discounted cumulative gain of the k highest-scoring classes.

        NDCG@k = mean over examples with labels of DCG@k / (the largest possible DCG@k)
        DCG@k = sum_{labels with rank r < k} 1 / log2(r + 2)

    where ranks start at 0. The largest possible value has the labels at the ranks 0, 1, ...,
    `min(k, #labels) - 1`. This is the NDCG of Järvelin and Kekäläinen (2002), "Cumulated
    gain-based evaluation of IR techniques", with the discount of Burges et al. (2005) and the
    gain 1 for each label, and equals `keras_rs.metrics.NDCG` with relevances of 0 and 1. With
    `k=None`, the default, it considers all classes. See `PrecisionAtK` for its other arguments,
    calls and value in training.
    """

    kind = "ndcg"

    def hit_terms(self, ranked: RankedLabels) -> tuple[tf.Tensor, tf.Tensor]:
        ranks = tf.cast(ranked.ranks, tf.float64)
        gains = ranked.sum_over_hits(_discount(ranks))
        width = tf.cast(tf.shape(ranks)[1], tf.float64)
        best = tf.range(tf.minimum(width, tf.cast(ranked.k, tf.float64)), dtype=tf.float64)
        is_filled = best < ranked.num_labels()[:, tf.newaxis]
        ideal = tf.reduce_sum(tf.where(is_filled, _discount(best), 0), axis=-1)
        return tf.math.divide_no_nan(gains, ideal), tf.ones_like(gains)


def _discount(ranks: tf.Tensor) -> tf.Tensor:
    return tf.math.log(tf.constant(2.0, tf.float64)) / tf.math.log(ranks + 2)
