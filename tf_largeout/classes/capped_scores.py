"""`CappedScores`: classes whose logits have a soft cap."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_largeout.classes import blockwise
from tf_largeout.classes.class_scorer import ClassScorer, ClassStatistics
from tf_largeout.classes.class_shard import ClassShard


class CappedScores(ClassScorer):
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
        super().__init__(uncapped.num_classes, uncapped.dim, uncapped.has_bias, uncapped._owner)
        self._uncapped = uncapped
        self.soft_cap = self._soft_cap = soft_cap

    @property
    def uncapped(self) -> Any:
        return self._uncapped

    def shards(self) -> list[ClassShard]:
        return self._uncapped.shards()

    def variables(self) -> tuple[tf.Variable, tf.Variable | None]:
        """As `ClassMatrix.variables`."""
        return self._uncapped.variables()

    def as_products(self) -> tuple[tf.Variable, tf.Variable | None] | None:
        return self._uncapped.as_products()

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        return self._uncapped.rows(ids)

    def values(self) -> tf.Tensor:
        return self._uncapped.values()

    def logits(self, features: tf.Tensor) -> tf.Tensor:
        return self.capped(self._uncapped.logits(features))

    def dots(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return self.capped(self._uncapped.dots(features, ids))

    def dots_and_rows(
        self, features: tf.Tensor, ids: tf.Tensor, shared_ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """As `ClassMatrix.dots_and_rows`, with capped logits."""
        logits, rows, biases = self._uncapped.dots_and_rows(features, ids, shared_ids)
        return self.capped(logits), rows, biases

    def statistics(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        compute_dtype: str = "float32",
        training: bool = False,
    ) -> ClassStatistics:
        """As `ClassScorer.statistics`. If ranks are used, another pass computes them."""
        self._require_float32(compute_dtype)
        features = tf.cast(features, tf.float32)
        if training:
            found = self._uncapped.exact_scores(features, labels, self.capped)
        else:
            fold = functools.partial(self.fold_logits, features, width=tf.shape(labels)[1])
            found = blockwise.statistics(fold, labels)

        def ranks() -> tf.Tensor:
            return self._uncapped.statistics(tf.stop_gradient(features), labels).ranks

        return ClassStatistics(found[0], found[1], ranks)

    def top_k(self, features: tf.Tensor, k: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        scores, ids = self._uncapped.top_k(features, k)
        return self.capped(scores), ids

    def top_k_of(
        self, features: tf.Tensor, classes: tf.Tensor | None, k: int | tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        scores, ids = self._uncapped.top_k_of(features, classes, k)
        return self.capped(scores), ids

    def fold_logits(
        self,
        features: tf.Tensor,
        function: Callable[[Any, tf.Tensor, tf.Tensor], Any],
        state: Any,
        **options: Any,
    ) -> Any:
        def of_capped(state: Any, logits: tf.Tensor, ids: tf.Tensor) -> Any:
            return function(state, self.capped(logits), ids)

        return self._uncapped.fold_logits(features, of_capped, state, **options)

    def sum_over_classes(
        self,
        features: tf.Tensor,
        function: Callable[[tf.Tensor], tf.Tensor],
        training: bool = False,
    ) -> tf.Tensor:
        return self._uncapped.sum_over_classes(
            features, lambda logits: function(self.capped(logits)), training
        )

    def ranked_scores(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """As `ClassScorer.ranked_scores`: ranks are those of the logits without a soft cap."""
        return self._uncapped.ranked_scores(features, ids)

    def absolute(self) -> "CappedScores":
        return CappedScores(self._uncapped.absolute(), self._soft_cap)

    def each_replica(self, function: Callable[[], Any]) -> None:
        self._uncapped.each_replica(function)
