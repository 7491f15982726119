"""The base class of the metrics of the k best classes."""

from typing import NamedTuple

import tensorflow as tf

from tf_largeout.arguments import boolean, whole_number
from tf_largeout.metrics.example_metric import ExampleMetric
from tf_largeout.tags.output_tag import OutputTag
from tf_largeout.types import Config, DTypeLike


class RankedLabels(NamedTuple):
    """The labels of `B` examples and their ranks.

    Attributes:
        labels: int64 `[B, L]`, padded with -1.
        valid: bool `[B, L]`, False at padding and at repeats of a label.
        ranks: int64 `[B, L]`, 0 for the best class.
        hits: bool `[B, L]`, the valid labels among the k best classes.
        k: The number of best classes; the number of all classes if the metric has no `k`.
    """

    labels: tf.Tensor
    valid: tf.Tensor
    ranks: tf.Tensor
    hits: tf.Tensor
    k: int

    def num_labels(self) -> tf.Tensor:
        """Returns float64 `[B]`, the number of valid labels."""
        return tf.reduce_sum(tf.cast(self.valid, tf.float64), axis=-1)

    def num_hits(self) -> tf.Tensor:
        """Returns float64 `[B]`, the number of hits."""
        return tf.reduce_sum(tf.cast(self.hits, tf.float64), axis=-1)

    def sum_over_hits(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the sum of `values`, `[B, L]`, over the hits, `[B]`."""
        return tf.reduce_sum(tf.where(self.hits, values, 0), axis=-1)


class RankMetric(ExampleMetric):
    """A metric of the labels with ranks below k.

    It is exact in `evaluate`, and in training with an exact loss. In training with a sampled
    loss, it ranks each label among the labels of its example and the classes drawn in that
    step. So the value is too high: the true rank is never better. With other losses, the value
    is NaN.

    Args:
        k: Number of best classes to consider, from 1 to the number of classes.
        absolute: True to rank by `|logit|`, False to rank by the logit. None, the default,
            uses the `ranking` of the layer, which the layer takes from its loss.
        name: Name of the metric, "{kind}_at_{k}" or "absolute_{kind}_at_{k}" by default,
            without "_at_{k}" if `k` is None.
        dtype: Dtype of the result, as in `keras.metrics.Metric`. The sums are float64.

    Raises:
        ValueError: If `k` is not a positive integer, or exceeds the number of classes.
    """

    kind = "hits"
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

    def hit_terms(self, ranked: RankedLabels) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the `example_terms`."""
        raise NotImplementedError(f"{type(self).__name__} must define `hit_terms`.")

    def example_terms(
        self, tag: OutputTag, labels: tf.Tensor, valid: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor] | None:
        k = tag.num_classes if self.k is None else self.k
        require_classes(self.name, k, tag)
        ranks = tag.label_ranks(labels, self.absolute)
        if ranks is None:
            return None
        return self.hit_terms(RankedLabels(labels, valid, ranks, valid & (ranks < k), k))

    def get_config(self) -> Config:
        return {**super().get_config(), "k": self.k, "absolute": self.absolute}


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


def require_classes(name: str, k: int, tag: OutputTag) -> None:
    """Raises a ValueError if a layer has fewer than `k` classes, for the metric `name`."""
    if k > tag.num_classes:
        raise ValueError(
            f"Metric '{name}' needs the k={k} best classes, but layer "
            f"'{tag.layer.name}' has only {tag.num_classes} classes. Pass a smaller `k`."
        )
