"""Ranks and the best classes, computed in blocks of classes.

Scores that are NaN or -inf rank last, as in the ops that scan the classes.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_largeout import checks
from tf_largeout.classes.best_scores import NOTHING, highest, without_overflow

_NUMBERS_OF_A_BLOCK, _LEAST_IN_BLOCK = 2**22, 64

BlockFunction = Callable[[Any, tf.Tensor, tf.Tensor], Any]
Fold = Callable[[BlockFunction, Any], Any]


def block_size(batch: tf.Tensor, dim: int, width: int | tf.Tensor) -> tf.Tensor:
    """Returns, as int64, how many classes a block has if its numbers take about 16 MiB.

    `width` numbers are computed from each score; `dim` is the width of the features.
    """
    numbers = tf.maximum(batch * tf.maximum(width, 1), dim)
    block = tf.maximum(_NUMBERS_OF_A_BLOCK // tf.maximum(numbers, 1), _LEAST_IN_BLOCK)
    return tf.cast(block, tf.int64)


def fold_blocks(
    count: int,
    block: tf.Tensor,
    function: Callable[[Any, tf.Tensor, tf.Tensor], Any],
    state: Any,
) -> Any:
    """Folds blocks of `count` rows by `state = function(state, first, size)`.

    This is for steps that XLA compiles, which needs to know all sizes. All blocks have the size
    `block`, an int64 scalar, except for the last. It may be smaller, and comes after the loop.
    """
    last = (count - 1) // block * block
    _, state = tf.while_loop(
        lambda first, _: first < last,
        lambda first, state: (first + block, function(state, first, block)),
        (tf.constant(0, tf.int64), state),
        parallel_iterations=1,
    )
    return function(state, last, count - last)


def ranks(fold: Fold, labels: tf.Tensor, true_scores: tf.Tensor, num_classes: int) -> tf.Tensor:
    """Returns how many classes rank above each label, int64 `[B, L]`; lower ids win ties.

    `fold` must have the same blocks as the fold that computed `true_scores`, so that equal
    class rows have equal scores. At padding, NaN and -inf the rank is `num_classes`.
    """
    own, own_ids = true_scores[:, :, tf.newaxis], labels[:, :, tf.newaxis]

    def add(ranks: tf.Tensor, scores: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return ranks + count(scores_higher(scores[:, tf.newaxis], ids, own, own_ids))

    found = fold(add, tf.zeros(tf.shape(labels), tf.int64))
    has_rank = (labels >= 0) & (true_scores > NOTHING)
    return tf.where(has_rank, found, num_classes)


def top_k(
    fold_logits: Callable[..., Any],
    features: tf.Tensor,
    k: int | tf.Tensor,
    classes: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the `k` best classes, as `ClassScorer.top_k_of`; the score is -inf for NaN."""
    features, lowest = checks.finite(features, "The features must be finite"), tf.float32.min

    def add(
        best: tuple[tf.Tensor, tf.Tensor], scores: tf.Tensor, ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        scores = tf.where(scores > lowest, scores, lowest)  # above `NOTHING`
        ids = tf.broadcast_to(ids, tf.shape(scores))
        scores, ids = tf.concat([best[0], scores], axis=1), tf.concat([best[1], ids], axis=1)
        scores, ids = highest(scores, ids, k)
        # If `k` is a tensor, the static shapes in the loop may be less precise.
        return tf.ensure_shape(scores, best[0].shape), tf.ensure_shape(ids, best[1].shape)

    shape = [tf.shape(features)[0], k]
    none = (tf.fill(shape, NOTHING), tf.fill(shape, tf.constant(-1, tf.int64)))
    scores, ids = fold_logits(features, add, none, classes=classes)
    return without_overflow(features, tf.where(scores > lowest, scores, NOTHING)), ids


def with_block(log_partition: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """Adds `exp(score)` of a block of scores, `[B, n]`, to sums given by their logs, `[B]`."""
    both = tf.stack([log_partition, tf.reduce_logsumexp(scores, axis=1)])
    return tf.reduce_logsumexp(both, axis=0)


def at_labels(
    scores: tf.Tensor, ids: tf.Tensor, labels: tf.Tensor, others: tf.Tensor
) -> tf.Tensor:
    """Returns `[B, L]`: the scores of the labels in a block, and `others` for all others."""
    in_block = (labels >= ids[0]) & (labels <= ids[-1])
    places = tf.where(in_block, labels - ids[0], 0)
    return tf.where(in_block, tf.gather(scores, places, batch_dims=1), others)


def scores_higher(
    scores: tf.Tensor, ids: tf.Tensor, own_scores: tf.Tensor, own_ids: tf.Tensor
) -> tf.Tensor:
    """Returns which classes rank above others. With equal scores, the lower id is higher."""
    ties = (scores == own_scores) & (ids < own_ids)
    return ((scores > own_scores) & (ids != own_ids)) | ties


def count(bools: tf.Tensor) -> tf.Tensor:
    """Counts the true values along the last axis, int64; correct below 2^24."""
    # TensorFlow sums floats far faster than bools or integers.
    return tf.cast(tf.reduce_sum(tf.cast(bools, tf.float32), axis=-1), tf.int64)
