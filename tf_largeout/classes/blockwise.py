"""What is asked of the scores of all classes, in blocks of classes.

Each function is given `fold(function, state)`, which calls `function(state, scores, ids)` for
one block of classes after the other, ids rising, and returns the last state: a
`ClassMatrix.fold_logits` of some features. Scores that are NaN or -inf count as lowest, as in
the ops that scan the classes.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

_NUMBERS_OF_A_BLOCK, _LEAST_IN_BLOCK = 2**22, 64

Fold = Callable[[Callable[[Any, tf.Tensor, tf.Tensor], Any], Any], Any]


def block_size(num_rows: tf.Tensor, dim: int, width: int | tf.Tensor) -> tf.Tensor:
    """How many classes a block has, int64: about 16 MiB of numbers.

    Args:
        num_rows: Number of rows of features.
        dim: Their width.
        width: How many numbers are made of each score.
    """
    numbers = tf.maximum(num_rows * tf.maximum(width, 1), dim)
    block = tf.maximum(_NUMBERS_OF_A_BLOCK // tf.maximum(numbers, 1), _LEAST_IN_BLOCK)
    return tf.cast(block, tf.int64)


def of_absolute(fold: Fold) -> Fold:
    """`fold`, of the absolute values of its scores."""

    def of_absolute_scores(function: Callable[..., Any], state: Any) -> Any:
        return fold(lambda state, scores, ids: function(state, tf.abs(scores), ids), state)

    return of_absolute_scores


def statistics(fold: Fold, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Log of the sum over classes of `exp(score)`, and the scores of the labels.

    Args:
        fold: See above.
        labels: int64 `[B, L]`, padded with -1.

    Returns:
        float32 `[B]`, and float32 `[B, L]`, 0 at padding.
    """

    def add(
        state: tuple[tf.Tensor, tf.Tensor], scores: tf.Tensor, ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        log_partition, true_scores = state
        of_block = tf.reduce_logsumexp(scores, axis=1)
        log_partition = tf.reduce_logsumexp(tf.stack([log_partition, of_block]), axis=0)
        return log_partition, at_labels(scores, ids, labels, true_scores)

    nothing = tf.fill(tf.shape(labels)[:1], -float("inf"))
    return fold(add, (nothing, tf.zeros(tf.shape(labels))))


def ranks(fold: Fold, labels: tf.Tensor, true_scores: tf.Tensor, num_classes: int) -> tf.Tensor:
    """How many classes have a higher score than the label, of equal ones those of lower id.

    Args:
        fold: See above; of the same blocks as the one that gave `true_scores`, so that of equal
            rows the numbers are equal.
        labels: int64 `[B, L]`, padded with -1.
        true_scores: float32 `[B, L]`, their scores.
        num_classes: The number of all classes.

    Returns:
        int64 `[B, L]`; `num_classes` at padding and where the score is NaN or -inf.
    """
    own, own_ids = true_scores[:, :, tf.newaxis], labels[:, :, tf.newaxis]

    def add(ranks: tf.Tensor, scores: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return ranks + count(scores_higher(scores[:, tf.newaxis], ids, own, own_ids))

    found = fold(add, tf.zeros(tf.shape(labels), tf.int64))
    has_rank = (labels >= 0) & (true_scores > -float("inf"))
    return tf.where(has_rank, found, num_classes)


def top_k(fold: Fold, batch: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The `k` classes with the highest scores, of equal ones the lower id first.

    Args:
        fold: See above.
        batch: int32, the number of rows.
        k: Between 1 and the number of classes.

    Returns:
        `(scores, ids)`: float32 and int64 `[B, k]`, best first; -inf for what is NaN.
    """
    nothing, lowest = -float("inf"), tf.float32.min

    def add(
        best: tuple[tf.Tensor, tf.Tensor], scores: tf.Tensor, ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        scores = tf.where(scores > lowest, scores, lowest)  # above `nothing`
        ids = tf.broadcast_to(ids, tf.shape(scores))
        # Of equal ones `top_k` puts the first first: that of the blocks before.
        scores, places = tf.math.top_k(tf.concat([best[0], scores], axis=1), k)
        ids = tf.gather(tf.concat([best[1], ids], axis=1), places, batch_dims=1)
        # Of a `k` that is a tensor the loop's body may know less than its start.
        return tf.ensure_shape(scores, best[0].shape), tf.ensure_shape(ids, best[1].shape)

    none = (tf.fill([batch, k], nothing), tf.fill([batch, k], tf.constant(-1, tf.int64)))
    scores, ids = fold(add, none)
    return tf.where(scores > lowest, scores, nothing), ids


def at_labels(
    scores: tf.Tensor, ids: tf.Tensor, labels: tf.Tensor, others: tf.Tensor
) -> tf.Tensor:
    """The scores of those labels that are in a block, float32 `[B, L]`; else `others`."""
    in_block = (labels >= ids[0]) & (labels <= ids[-1])
    places = tf.where(in_block, labels - ids[0], 0)
    return tf.where(in_block, tf.gather(scores, places, batch_dims=1), others)


def scores_higher(
    scores: tf.Tensor, ids: tf.Tensor, own_scores: tf.Tensor, own_ids: tf.Tensor
) -> tf.Tensor:
    """Whether classes score higher than others; of equal ones the lower id does."""
    ties = (scores == own_scores) & (ids < own_ids)
    return ((scores > own_scores) & (ids != own_ids)) | ties


def count(bools: tf.Tensor) -> tf.Tensor:
    """How many in the last axis, below 2^24, are true, int64: in floats, far faster summed."""
    return tf.cast(tf.reduce_sum(tf.cast(bools, tf.float32), axis=-1), tf.int64)
