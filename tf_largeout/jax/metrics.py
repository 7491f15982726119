"""The metrics of the ranks of labels on JAX, exact in `evaluate`.

Formulas, arguments and calls are those on TensorFlow, whose docstrings explain them. But
`absolute` must be False or None, and labels out of range give NaN in a compiled step.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import keras
import numpy as np

from tf_largeout import arguments
from tf_largeout.jax.steps import (
    EXCLUDED,
    Step,
    first_occurrences,
    keeps_weights,
    per_example,
    tag_of,
)
from tf_largeout.wrong_arguments import OF_METRICS, refuse_wrong_arguments_of

Terms = tuple[jax.Array, jax.Array]


class ExampleMetric(keras.metrics.Metric):
    """A weighted ratio of two sums over the examples of all batches.

    Subclasses define `example_terms`. Each sum is two float32 numbers, `total + rest`, which
    are as precise as float64 for counts of examples. Examples of weight 0 add nothing, even if
    their terms are NaN. If no step could compute the metric, the result is NaN.
    """

    kind: str | None = None  # the default name
    _direction = "up"  # Keras's callbacks with mode "auto" look for larger values

    def __new__(cls, *args: Any, **kwargs: Any) -> "ExampleMetric":
        refuse_wrong_arguments_of(cls, kwargs, OF_METRICS)
        return super().__new__(cls)

    def __init__(
        self, absolute: bool | None = None, name: str | None = None, dtype: Any = None
    ) -> None:
        super().__init__(name=name or self.kind, dtype=dtype)
        self.absolute = arguments.boolean("absolute", absolute, or_none=True)
        if absolute:
            raise ValueError(
                f"{type(self).__name__}(absolute=True) needs Keras's TensorFlow backend. On "
                "JAX, layers rank by the logit. Omit `absolute`."
            )
        self.numerator, self.denominator, self.numerator_rest, self.denominator_rest = (
            self.add_variable((), "zeros", dtype="float32", name=one)
            for one in ("numerator", "denominator", "numerator_rest", "denominator_rest")
        )

    def example_terms(self, step: Step, valid: jax.Array) -> Terms | None:
        """Returns what each example adds to the two sums, arrays that broadcast to `[B]`.

        `valid`, bool `[B, L]`, is False at padding and at repeats of a label. None if this step
        cannot compute the terms.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `example_terms`.")

    @keeps_weights
    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        tag = tag_of(y_pred, type(self).__name__)
        if tag is None:
            return
        try:
            labels = tag.labels(y_true)
        except ValueError as error:
            raise ValueError(f"Metric '{self.name}' cannot use its labels. {error}") from error
        weights = jnp.ones(tag.leading)
        if sample_weight is not None:
            weights = per_example(sample_weight, tag.leading).astype(jnp.float32)
        weights = jnp.where(tag.counted(labels), weights, 0).reshape(-1)
        # A compiled step cannot raise errors for wrong labels.
        weights = jnp.where(labels.is_valid, weights, jnp.nan)
        terms = self.example_terms(tag.step(labels), first_occurrences(labels.ids))
        if terms is not None:
            added = [jnp.where(weights != 0, weights * one, 0).sum() for one in terms]
            add_exactly(self.numerator, self.numerator_rest, added[0])
            add_exactly(self.denominator, self.denominator_rest, added[1])

    def result(self) -> jax.Array:
        total = self.denominator.value + self.denominator_rest.value
        quotient = (self.numerator.value + self.numerator_rest.value) / total
        return jnp.where(total == 0, jnp.nan, quotient).astype(self.dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "absolute": self.absolute}


def add_exactly(total: keras.Variable, rest: keras.Variable, added: jax.Array) -> None:
    """Adds a number to `total + rest`; `rest` is what `total` loses by rounding (Kahan)."""
    before, added = total.value, added + rest.value
    after = before + added
    part = after - before
    rest.assign((before - (after - part)) + (added - part))
    total.assign(after)


@keras.saving.register_keras_serializable(package="tf_largeout")
class Perplexity(ExampleMetric):
    """The exponential of the mean exact cross entropy; in training, it is always NaN."""

    kind, _direction = "perplexity", "down"

    def example_terms(self, step: Step, valid: jax.Array) -> Terms | None:
        if step.training:
            return None
        found = step.statistics()
        of_labels = jnp.where(valid, found.true_logits, 0).sum(axis=1)
        losses = found.log_partition - of_labels / jnp.maximum(valid.sum(axis=1), 1)
        return losses, jnp.ones_like(losses)

    def result(self) -> jax.Array:
        return jnp.exp(super().result())


class RankedLabels(NamedTuple):
    """The ranks of the labels of `B` examples."""

    ranks: jax.Array  # int32 [B, L], 0 for the best class
    hits: jax.Array  # bool [B, L], the valid labels among the k best classes
    num_labels: jax.Array  # float32 [B], the number of valid labels, at least 1
    k: int  # the number of all classes if the metric has no `k`


class RankMetric(ExampleMetric):
    """A metric of the labels with ranks below k. Subclasses define `hit_values`."""

    kind = "hits"  # the default name is "{kind}_at_{k}"
    k_or_none = False  # whether `k` may be None, for all classes

    def __init__(
        self,
        k: int | None,
        absolute: bool | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        at_k = "" if k is None else f"_at_{k}"
        super().__init__(absolute, name or f"{self.kind}{at_k}", dtype)
        self.k = None if k is None and self.k_or_none else arguments.whole_number("k", k)

    def hit_values(self, ranked: RankedLabels) -> jax.Array:
        """Returns the value of each example, float32 `[B]`; 0 without labels."""
        raise NotImplementedError(f"{type(self).__name__} must define `hit_values`.")

    def example_terms(self, step: Step, valid: jax.Array) -> Terms | None:
        k = step.head.num_classes if self.k is None else self.k
        if k > step.head.num_classes:
            raise arguments.too_large_k(k, step.head.num_classes, self.name, step.head.name)
        ranks = step.label_ranks()
        if ranks is None:
            return None
        number = jnp.maximum(valid.sum(axis=1), 1).astype(jnp.float32)
        values = self.hit_values(RankedLabels(ranks, valid & (ranks < k), number, k))
        return values, jnp.ones_like(values)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "k": self.k}


class FullRankMetric(RankMetric):
    """A `RankMetric` that considers all classes if `k` is None, the default."""

    k_or_none = True

    def __init__(self, k: int | None = None, *args: Any, **options: Any) -> None:
        super().__init__(k, *args, **options)


@keras.saving.register_keras_serializable(package="tf_largeout")
class PrecisionAtK(RankMetric):
    """P@k: the share of labels among the k highest-scoring classes.

    In training with a sampled loss, metrics rank a label only among the labels of its example
    and the drawn classes, so their values are too high.
    """

    kind = "precision"

    def hit_values(self, ranked: RankedLabels) -> jax.Array:
        return ranked.hits.sum(axis=1) / ranked.k


@keras.saving.register_keras_serializable(package="tf_largeout")
class RecallAtK(RankMetric):
    """R@k: the share of an example's labels that are among the k best classes."""

    kind = "recall"

    def hit_values(self, ranked: RankedLabels) -> jax.Array:
        return ranked.hits.sum(axis=1) / ranked.num_labels


@keras.saving.register_keras_serializable(package="tf_largeout")
class HitRateAtK(RankMetric):
    """HR@k: the share of examples with a label among the k best classes."""

    kind = "hit_rate"

    def hit_values(self, ranked: RankedLabels) -> jax.Array:
        return ranked.hits.any(axis=1).astype(jnp.float32)


@keras.saving.register_keras_serializable(package="tf_largeout")
class MeanReciprocalRank(FullRankMetric):
    """MRR: the mean of 1 / (position of the first label)."""

    kind = "mean_reciprocal_rank"

    def hit_values(self, ranked: RankedLabels) -> jax.Array:
        return jnp.where(ranked.hits, 1 / (1 + ranked.ranks), 0).max(axis=1, initial=0)


@keras.saving.register_keras_serializable(package="tf_largeout")
class MeanAveragePrecision(FullRankMetric):
    """MAP: the mean over labels of the precision down to the label."""

    kind = "mean_average_precision"

    def hit_values(self, ranked: RankedLabels) -> jax.Array:
        ordered = jnp.sort(jnp.where(ranked.hits, ranked.ranks, np.iinfo(np.int32).max), axis=1)
        precisions = (1 + jnp.arange(ordered.shape[1])) / (1 + ordered.astype(jnp.float32))
        return jnp.where(ordered < ranked.k, precisions, 0).sum(axis=1) / ranked.num_labels


@keras.saving.register_keras_serializable(package="tf_largeout")
class NDCG(FullRankMetric):
    """Normalized discounted cumulative gain of the k best classes."""

    kind = "ndcg"

    def hit_values(self, ranked: RankedLabels) -> jax.Array:
        gains = jnp.where(ranked.hits, 1 / jnp.log2(ranked.ranks + 2.0), 0).sum(axis=1)
        best = jnp.arange(min(ranked.hits.shape[1], ranked.k))
        is_filled = best < ranked.num_labels[:, None]
        return gains / jnp.where(is_filled, 1 / jnp.log2(best + 2.0), 0).sum(axis=1)


def with_exclude(labels: Any, exclude: Any) -> np.ndarray:
    """Returns labels that also name classes that `evaluate` must not rank, such as seen items.

    `exclude` are ids `[..., n]`, padded with -1, a list of lists or sets, or a SciPy sparse
    matrix, whose nonzero columns are excluded. Returns int32 `[..., max_labels + n]`: each
    excluded class is a further column, `class - 2^31`.
    """
    ids, excluded = map(arguments.padded_ids, ("labels", "exclude"), (labels, exclude))
    shape = ids.shape
    for name, found in (("labels", ids), ("exclude", excluded)):
        if found.size and found.max() > arguments.MOST_CLASSES:
            raise ValueError(f"`{name}` must be class ids. Received: {found.max()}.")
    if ids.ndim + 1 == excluded.ndim:
        ids = ids[..., np.newaxis]
    if excluded.ndim < 2 or ids.shape[:-1] != excluded.shape[:-1]:
        raise arguments.wrong_exclude(shape, excluded.shape)
    columns = np.where(excluded < 0, -1, excluded + EXCLUDED)
    return np.concatenate([ids, columns], axis=-1, dtype=np.int32)
