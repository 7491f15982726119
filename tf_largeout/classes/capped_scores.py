"""`CappedScores`: classes whose logits have a soft cap."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_largeout.classes import blockwise
from tf_largeout.classes.class_scorer import MappedScores
from tf_largeout.classes.class_shard import ClassShard
from tf_largeout.classes.class_statistics import ClassStatistics


class CappedScores(MappedScores):
    """A view of classes whose logits are `cap * tanh(o_c / cap)`.

    The soft cap does not change the order of the classes. So ranks and best classes are those
    of the logits without it, and only scores are capped.

    Args:
        uncapped: The `ClassScorer` of the logits o_c.
        soft_cap: The cap, above 0.

    References:
        Gemma Team 2024, "Gemma 2: improving open language models at a practical size",
        section 2 (logit soft-capping).
    """

    def __init__(self, uncapped: Any, soft_cap: float) -> None:
        super().__init__(uncapped)
        self.soft_cap = self._soft_cap = soft_cap
        self.has_unit_rows = uncapped.has_unit_rows

    def mapped(self, logits: tf.Tensor) -> tf.Tensor:
        return self.capped(logits)

    @property
    def uncapped(self) -> Any:
        return self.original

    def shards(self) -> list[ClassShard]:
        return self.original.shards()

    def variables(self) -> tuple[tf.Variable, tf.Variable | None]:
        """See `ClassMatrix.variables`."""
        return self.original.variables()

    def as_products(self) -> tuple[tf.Variable, tf.Variable | None] | None:
        return self.original.as_products()

    def dots_and_rows(
        self, features: tf.Tensor, ids: tf.Tensor, shared_ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Like `ClassMatrix.dots_and_rows`, with capped logits."""
        logits, rows, biases = self.original.dots_and_rows(features, ids, shared_ids)
        return self.capped(logits), rows, biases

    def statistics(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        compute_dtype: str = "float32",
        training: bool = False,
    ) -> ClassStatistics:
        """Like `ClassScorer.statistics`. If ranks are used, another pass computes them."""
        self._require_float32(compute_dtype)
        features = tf.cast(features, tf.float32)
        if training:
            found = self.original.exact_scores(features, labels, self.capped)
        else:
            fold = functools.partial(self.fold_logits, features, width=tf.shape(labels)[1])
            found = blockwise.statistics(fold, labels)

        def ranks() -> tf.Tensor:
            return self.original.statistics(tf.stop_gradient(features), labels).ranks

        return ClassStatistics(found[0], found[1], ranks)

    def top_k(self, features: tf.Tensor, k: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        scores, ids = self.original.top_k(features, k)
        return self.capped(scores), ids

    def top_k_of(
        self, features: tf.Tensor, classes: tf.Tensor | None, k: int | tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        scores, ids = self.original.top_k_of(features, classes, k)
        return self.capped(scores), ids

    def ranked_scores(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """See `ClassScorer.ranked_scores`. Not capped: a soft cap does not change ranks."""
        return self.original.ranked_scores(features, ids)

    def absolute(self) -> "CappedScores":
        return CappedScores(self.original.absolute(), self._soft_cap)

    def each_replica(self, function: Callable[[], Any]) -> None:
        self.original.each_replica(function)
