"""Finds the best classes in an export, by scoring all of them."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from tf_largeout import checks
from tf_largeout.classes.best_scores import highest, search_without
from tf_largeout.classes.class_matrix import RowScorer
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.classes.logit_form import LogitForm
from tf_largeout.classes.probabilities import AllScores
from tf_largeout.classes.quantized_rows import packed_source, quantized_products

# It holds the scores of one block of classes: `[batch, 65536]` float32 are 16 MiB for a batch
# of 64. Each block adds some nodes to the graph, so there are at most 64 blocks.
_LEAST_BLOCK, _MOST_BLOCKS = 2**16, 64
# Slices that start at a multiple of this number of rows are aligned for any width. TensorFlow
# does not copy aligned slices.
_ALIGNED_ROWS = 16


class ClassScores(AllScores, Protocol):
    """Finds the best classes for an export, and computes sums over all classes."""

    def top_k(
        self, features: tf.Tensor, k: int | tf.Tensor, exclude: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the `k` classes with the highest scores that are not excluded.

        Args:
            features: float32 `[B, dim]`, finite.
            k: From 0 to the number of classes; at least 1 with `exclude`.
            exclude: int64 `[B, n]`, padded with negative ids; or None.

        Returns:
            `(scores, ids)`: float32 and int64 `[B, k]`, best first. If fewer than `k`
            classes remain, the last scores are -inf and the last ids are -1.
        """


class AllClasses:
    """Searches all classes with the `top_k` of a scorer.

    Args:
        scorer: Scores the classes.

    Attributes:
        num_classes: Number of classes.
    """

    def __init__(self, scorer: "ClassScorer | BlockedProducts") -> None:
        self._scorer, self.num_classes = scorer, scorer.num_classes

    def top_k(
        self, features: tf.Tensor, k: int | tf.Tensor, exclude: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """See `ClassScores.top_k`."""
        if exclude is None:
            return self._scorer.top_k(features, k)
        search = functools.partial(self._scorer.top_k, features)
        return search_without(search, self.num_classes, exclude, k)

    def log_partitions(
        self, features: tf.Tensor, log_weight: Callable[[tf.Tensor], tf.Tensor] | None = None
    ) -> tf.Tensor:
        """See `ClassScores.log_partitions`."""
        return self._scorer.log_partitions(features, log_weight)


class BlockedProducts:
    """All classes, scored exactly by inner products in blocks, with core TensorFlow ops.

    The graph has no loop, so that converters for other runtimes support it. Each block waits
    for the previous block, so a query of B examples takes O(B * block) memory. A block has
    65,536 classes, or a 64th of all classes if that is more. Blocks are slightly slower than
    one product with all classes, which would take O(B * num_classes) memory.

    Args:
        embeddings: float32 variable `[num_classes, dim]`, or int8 with `scales`.
        bias: float32 variable `[num_classes]`, or None.
        scales: float32 variable `[num_classes]`, factors of the rows; or None.
        form: The form of the scores.
        block: Number of classes to score at a time; by default as above.
    """

    def __init__(
        self,
        embeddings: tf.Variable,
        bias: tf.Variable | None,
        scales: tf.Variable | None = None,
        form: LogitForm | None = None,
        block: int | None = None,
    ) -> None:
        self._embeddings, self._bias, self._scales = embeddings, bias, scales
        self._form = form or LogitForm()
        self.num_classes = int(embeddings.shape[0])
        self._block = block or default_block(self.num_classes)

    def top_k(self, features: tf.Tensor, k: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Like `ClassScores.top_k` without exclusions; lower ids win ties."""

        def best(scores: tf.Tensor, first: int) -> tuple[tf.Tensor, tf.Tensor]:
            most = int(scores.shape[1])
            of_block = min(k, most) if isinstance(k, int) else tf.minimum(k, most)
            scores, places = tf.math.top_k(scores, of_block)
            return scores, tf.cast(places, tf.int64) + first

        found = self._of_blocks(features, best)
        scores, ids = found[0]
        if len(found) > 1:
            scores, ids = (tf.concat(parts, axis=1) for parts in zip(*found, strict=True))
            scores, ids = highest(scores, ids, k)
        return self._form.capped(scores), ids

    def log_partitions(
        self, features: tf.Tensor, log_weight: Callable[[tf.Tensor], tf.Tensor] | None = None
    ) -> tf.Tensor:
        """Like `ClassScores.log_partitions`, in another pass over the blocks."""

        def of_block(scores: tf.Tensor, first: int) -> tf.Tensor:
            scores = self._form.capped(scores)
            return _log_sum(scores if log_weight is None else log_weight(scores))

        return _log_sum(tf.stack(self._of_blocks(features, of_block), axis=1))

    def _of_blocks(
        self, features: tf.Tensor, function: Callable[[tf.Tensor, int], Any]
    ) -> list[Any]:
        """Returns `function(scores, first)` of each block, in turn.

        The scores are float32 `[B, n]`, without the cap.
        """
        form = dataclasses.replace(self._form, cap=None)
        embeddings = self._embeddings.read_value()
        bias = None if self._bias is None else self._bias.read_value()
        scales = None if self._scales is None else self._scales.read_value()
        found: list[Any] = []
        for first in range(0, self.num_classes, self._block):
            end = min(first + self._block, self.num_classes)
            queries = checks.passed(tf.nest.flatten(found[-1:])[:1], features)
            rows = tf.cast(embeddings[first:end], tf.float32)
            logits = tf.matmul(queries, rows, transpose_b=True)
            if scales is not None:
                logits *= scales[first:end]
            if bias is not None:
                logits += bias[first:end]
            found.append(function(tf.identity(form.scores(logits)), first))
        return found


def exact_classes(scorer: ClassScorer, ops: str, quantize: bool) -> ClassScores:
    """Returns a search of all classes.

    Args:
        scorer: Scores the classes.
        ops: "core" or "custom".
        quantize: Whether the export has 8-bit rows.

    Raises:
        ValueError: If there are no rows to quantize.
    """
    scorer, form = scorer.frozen(), scorer.form
    if quantize:
        rows = scorer.require_rows("embeddings_dtype='int8'")
        if ops == "custom":
            return AllClasses(RowScorer(packed_source(rows), form))
        return AllClasses(BlockedProducts(*quantized_products(rows), form=form))
    products = None if ops == "custom" else scorer.product_rows()
    if products is None or products.is_rounded:
        # In blocks, by core TensorFlow ops. Products would be a float32 copy of rounded rows.
        return AllClasses(scorer)
    return AllClasses(BlockedProducts(*products.as_products(), form=form))


def _log_sum(values: tf.Tensor) -> tf.Tensor:
    """Returns `log sum exp` of `[B, n]`, finite, `[B]`.

    `tf.reduce_logsumexp` also supports infinite values, by operations that LiteRT lacks.
    """
    highest = tf.reduce_max(values, axis=1, keepdims=True)
    return tf.math.log(tf.reduce_sum(tf.exp(values - highest), axis=1)) + highest[:, 0]


def default_block(num_classes: int) -> int:
    """Returns the number of classes that `BlockedProducts` scores at a time."""
    block = max(_LEAST_BLOCK, -(-num_classes // _MOST_BLOCKS))
    return -(-block // _ALIGNED_ROWS) * _ALIGNED_ROWS
