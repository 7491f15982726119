"""The base class of the metrics that look at the k best classes."""

import tensorflow as tf

from tf_largeout.arguments import boolean, whole_number
from tf_largeout.metrics.row_metric import RowMetric
from tf_largeout.tags.output_tag import OutputTag
from tf_largeout.types import Config, DTypeLike


class RankMetric(RowMetric):
    """A metric of the labels whose rank is below k.

    Exact in `evaluate`, and in training with an exact loss. In training with a sampled loss it
    ranks each label among the labels of its row and the classes drawn in that step, which is
    optimistic: the true rank is never better. With a loss that draws none it is NaN.

    Args:
        k: How many of the best classes count, from 1 to the number of classes.
        absolute: True for the best by `|logit|`, False for the best by logit. None, the
            default, for the `ranking` of the layer, which is that of its loss.
        name: Name of the metric, `kind` and k by default, after "absolute_" where it is that.
        dtype: Type of the result, as in `keras.metrics.Metric`. (The sums are float64.)

    Raises:
        ValueError: If `k` is no positive integer, or above the number of classes.
    """

    kind = "hits"

    def __init__(
        self,
        k: int,
        absolute: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        default = f"{'absolute_' if absolute else ''}{self.kind}_at_{k}"
        super().__init__(name=name or default, dtype=dtype)
        self.k = whole_number("k", k)
        self.absolute = boolean("absolute", absolute, or_none=True)

    def hit_terms(
        self, hits: tf.Tensor, labels: tf.Tensor, valid: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The `row_terms`, given bool `hits` `[B, L]`: valid labels among the k best."""
        raise NotImplementedError(f"{type(self).__name__} must define `hit_terms`.")

    def row_terms(
        self, tag: OutputTag, labels: tf.Tensor, valid: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor] | None:
        if self.k > tag.num_classes:
            raise ValueError(
                f"Metric '{self.name}' looks at the k={self.k} best classes, but layer "
                f"'{tag.layer.name}' has only {tag.num_classes}. Pass a smaller `k`."
            )
        ranks = tag.label_ranks(labels, self.absolute)
        if ranks is None:
            return None
        return self.hit_terms(valid & (ranks < self.k), labels, valid)

    def get_config(self) -> Config:
        return {**super().get_config(), "k": self.k, "absolute": self.absolute}
