"""What finds the best classes in an export: here all are scored, by TensorFlow's own ops."""

from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

# Of so many classes at a time the scores are held: `[batch, 65536]` float32 are 16 MiB for a
# batch of 64. No more blocks than this, though: each is some nodes of the graph.
_LEAST_BLOCK, _MOST_BLOCKS = 2**16, 64
# Slices that begin at such rows are aligned for any width, and TensorFlow copies no rows.
_ALIGNED_ROWS = 16
NOTHING = -float("inf")  # the score of no class


class ClassScores(Protocol):
    """What an export asks for the best classes."""

    def top_k(
        self, features: tf.Tensor, k: int | tf.Tensor, exclude: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The `k` classes with the highest scores, of those that are not excluded.

        Args:
            features: float32 `[B, dim]`, finite.
            k: From 0 to the number of classes.
            exclude: int64 `[B, n]`, padded with negative ids; or None.

        Returns:
            `(scores, ids)`: float32 and int64 `[B, k]`, best first; -inf and -1 where there
            are fewer classes.
        """


class AllClasses:
    """All classes of a matrix, scored by its `top_k`.

    Args:
        matrix: A `ClassMatrix`, or another that has `top_k` and `num_classes`.
        **options: Of its `top_k`.

    Attributes:
        num_classes: How many classes there are.
    """

    def __init__(self, matrix: Any, **options: Any) -> None:
        self._matrix, self.num_classes = matrix, int(matrix.num_classes)
        self._options = options

    def top_k(
        self, features: tf.Tensor, k: int | tf.Tensor, exclude: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """As `ClassScores.top_k`."""
        if exclude is None:
            return self._matrix.top_k(features, k, **self._options)
        # Of so many at most `n` are excluded.
        enough = tf.minimum(k + tf.shape(exclude)[1], self.num_classes)
        scores, ids = self._matrix.top_k(features, enough, **self._options)
        return best_but(scores, ids, exclude, k)


class BlockedProducts:
    """All classes, scored by inner products in blocks: exact, by stock operations alone.

    The blocks stand one after the other in the graph, without a loop, so that other runtimes
    can convert it; each waits for the one before it, so that memory is O(B * block). The block
    is 65,536 classes, or a 64th of them where that is more. It takes somewhat longer than one
    product of all, whose result would be `[B, num_classes]`.

    Args:
        embeddings: float32 variable `[num_classes, dim]`.
        bias: float32 variable `[num_classes]`, or None.
        block: How many classes are scored at a time; by default as above.
    """

    def __init__(
        self, embeddings: tf.Variable, bias: tf.Variable | None, block: int | None = None
    ) -> None:
        self._embeddings, self._bias = embeddings, bias
        self.num_classes = int(embeddings.shape[0])
        self._block = block or default_block(self.num_classes)

    def top_k(
        self, features: tf.Tensor, k: int | tf.Tensor, absolute: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """As `ClassScores.top_k` without exclusions; of equal scores, lower ids first.

        With `absolute` the scores are the absolute values of the products.
        """
        found = self._best_of_blocks(features, k, tf.abs if absolute else tf.identity)
        if len(found) == 1:
            return found[0]
        scores, ids = (tf.concat(parts, axis=1) for parts in zip(*found, strict=True))
        # Of equal ones `top_k` puts the first first: that of the blocks before.
        scores, places = tf.math.top_k(scores, k)
        return scores, tf.gather(ids, places, batch_dims=1)

    def _best_of_blocks(
        self,
        features: tf.Tensor,
        k: int | tf.Tensor,
        score: Callable[[tf.Tensor], tf.Tensor],
    ) -> list[tuple[tf.Tensor, tf.Tensor]]:
        embeddings = self._embeddings.read_value()
        bias = None if self._bias is None else self._bias.read_value()
        found: list[tuple[tf.Tensor, tf.Tensor]] = []
        for first in range(0, self.num_classes, self._block):
            end = min(first + self._block, self.num_classes)
            with tf.control_dependencies([scores for scores, _ in found[-1:]]):
                queries = tf.identity(features)
            logits = tf.matmul(queries, embeddings[first:end], transpose_b=True)
            if bias is not None:
                logits += bias[first:end]
            most = end - first
            of_block = min(k, most) if isinstance(k, int) else tf.minimum(k, most)
            scores, places = tf.math.top_k(score(logits), of_block)
            found.append((scores, tf.cast(places, tf.int64) + first))
        return found


def best_but(
    scores: tf.Tensor, ids: tf.Tensor, exclude: tf.Tensor, k: int | tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The best `k` of answers `[B, m]` that are not excluded, -inf in the place of others.

    Args:
        scores: float32 `[B, m]`.
        ids: int64 `[B, m]`.
        exclude: int64 `[B, n]` or `[1, n]`.
        k: At most m.
    """
    excluded = tf.reduce_any(ids[:, :, tf.newaxis] == exclude[:, tf.newaxis], axis=2)
    scores, places = tf.math.top_k(tf.where(excluded, NOTHING, scores), k)
    return scores, tf.gather(ids, places, batch_dims=1)


def default_block(num_classes: int) -> int:
    """How many classes `BlockedProducts` scores at a time."""
    block = max(_LEAST_BLOCK, -(-num_classes // _MOST_BLOCKS))
    return -(-block // _ALIGNED_ROWS) * _ALIGNED_ROWS
