"""The base class of the metrics of the k best classes."""

import tensorflow as tf

from tf_largeout.arguments import boolean, whole_number
from tf_largeout.metrics.example_metric import ExampleMetric
from tf_largeout.tags.output_tag import OutputTag
from tf_largeout.types import Config, DTypeLike


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
        name: Name of the metric, "{kind}_at_{k}" or "absolute_{kind}_at_{k}" by default.
        dtype: Dtype of the result, as in `keras.metrics.Metric`. The sums are float64.

    Raises:
        ValueError: If `k` is not a positive integer, or exceeds the number of classes.
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
        """Returns the `example_terms`; `hits`, bool `[B, L]`, marks labels among the k best."""
        raise NotImplementedError(f"{type(self).__name__} must define `hit_terms`.")

    def example_terms(
        self, tag: OutputTag, labels: tf.Tensor, valid: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor] | None:
        if self.k > tag.num_classes:
            raise ValueError(
                f"Metric '{self.name}' needs the k={self.k} best classes, but layer "
                f"'{tag.layer.name}' has only {tag.num_classes} classes. Pass a smaller `k`."
            )
        ranks = tag.label_ranks(labels, self.absolute)
        if ranks is None:
            return None
        return self.hit_terms(valid & (ranks < self.k), labels, valid)

    def get_config(self) -> Config:
        return {**super().get_config(), "k": self.k, "absolute": self.absolute}
