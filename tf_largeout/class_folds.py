"""What is asked of |logit| over all classes, in blocks of classes.

Each function is given `fold(function, state)`, which calls `function(state, logits, ids)` for
one block of classes after the other, ids rising, and returns the last state: a
`ClassMatrix.fold_logits` of some features.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Fold = Callable[[Callable[[Any, tf.Tensor, tf.Tensor], Any], Any], Any]


def absolute_statistics(fold: Fold, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Log of the sum over classes of `exp(|o_c|)`, and `|o_y|` of the labels.

    Args:
        fold: See above.
        labels: int64 `[B, L]`, padded with -1.

    Returns:
        float32 `[B]`, and float32 `[B, L]`, 0 at padding.
    """

    def add(
        state: tuple[tf.Tensor, tf.Tensor], logits: tf.Tensor, ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        log_partition, true_logits = state
        logits = tf.abs(logits)
        of_block = tf.reduce_logsumexp(logits, axis=1)
        log_partition = tf.reduce_logsumexp(tf.stack([log_partition, of_block]), axis=0)
        in_block = (labels >= ids[0]) & (labels <= ids[-1])
        places = tf.where(in_block, labels - ids[0], 0)
        picked = tf.gather(logits, places, batch_dims=1)
        return log_partition, tf.where(in_block, picked, true_logits)

    nothing = tf.fill(tf.shape(labels)[:1], -float("inf"))
    return fold(add, (nothing, tf.zeros(tf.shape(labels))))


def absolute_ranks(
    fold: Fold, labels: tf.Tensor, true_logits: tf.Tensor, num_classes: int
) -> tf.Tensor:
    """How many classes have a higher `|o_c|` than the label, of equal ones those of lower id.

    Args:
        fold: See above; of the same blocks as the one that gave `true_logits`, so that of equal
            rows the numbers are equal.
        labels: int64 `[B, L]`, padded with -1.
        true_logits: float32 `[B, L]`, from `absolute_statistics`.
        num_classes: The number of all classes.

    Returns:
        int64 `[B, L]`; `num_classes` at padding and where the logit is NaN.
    """

    def add(ranks: tf.Tensor, logits: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        others, own = tf.abs(logits)[:, tf.newaxis, :], true_logits[:, :, tf.newaxis]
        label = labels[:, :, tf.newaxis]
        is_above = ((others > own) & (ids != label)) | ((others == own) & (ids < label))
        return ranks + tf.reduce_sum(tf.cast(is_above, tf.int64), axis=2)

    ranks = fold(add, tf.zeros(tf.shape(labels), tf.int64))
    has_rank = (labels >= 0) & ~tf.math.is_nan(true_logits)
    return tf.where(has_rank, ranks, num_classes)


def absolute_top_k(fold: Fold, batch: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The `k` classes with the highest `|o_c|`, of equal ones the lower id first.

    Args:
        fold: See above.
        batch: int32, the number of rows.
        k: Between 1 and the number of classes.

    Returns:
        `(scores, ids)`: float32 and int64 `[B, k]`, best first; logits that are NaN are last.
    """

    def add(
        best: tuple[tf.Tensor, tf.Tensor], logits: tf.Tensor, ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        scores = tf.where(tf.math.is_nan(logits), -1.0, tf.abs(logits))
        ids = tf.broadcast_to(ids, tf.shape(scores))
        # Of equal ones `top_k` puts the first first: that of the blocks before.
        scores, places = tf.math.top_k(tf.concat([best[0], scores], axis=1), k)
        ids = tf.gather(tf.concat([best[1], ids], axis=1), places, batch_dims=1)
        return scores, ids

    none = (tf.fill([batch, k], -2.0), tf.fill([batch, k], tf.constant(-1, tf.int64)))
    scores, ids = fold(add, none)
    return tf.where(scores < 0, float("nan"), scores), ids
