"""Classes that `evaluate` must not rank, in the same matrix of ids as the labels.

Keras passes one tensor of labels to the loss and the metrics of an output. So the excluded
classes of an example are further columns of its labels: class c is written as `c - 2^62`, far
below all values that occur as padding.
"""

import tensorflow as tf

from tf_largeout import checks
from tf_largeout.classes.best_scores import NOTHING, are_among
from tf_largeout.classes.filtered_top_k import class_ids
from tf_largeout.types import TensorLike

_OFFSET = -(2**62)


def encoded(exclude: TensorLike) -> tf.Tensor:
    """Returns ids of excluded classes as label columns, int64, padded with -1.

    Args:
        exclude: Integer ids `[..., n]`, where negative ids are padding; or another form that
            `class_ids` accepts.

    Raises:
        ValueError: If they are not integers.
    """
    ids = class_ids("exclude", exclude)
    in_range = ids < -_OFFSET
    check = checks.require(
        tf.reduce_all(in_range), ["`exclude` must be class ids. Received:", tf.reduce_max(ids)]
    )
    ids = checks.passed([check], ids)
    return tf.where(ids < 0, tf.constant(-1, tf.int64), ids + _OFFSET)


def split(columns: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Splits a matrix of ids into labels and excluded classes.

    Args:
        columns: int64 `[B, W]`: class ids, padding, or values of `encoded`.

    Returns:
        `(labels, excluded)`: int64 `[B, W]`, each with -1 at the places of the other; None in
        place of `excluded` if the matrix has one column, which contains the label.
    """
    if columns.shape[1] == 1:
        return columns, None
    padding = tf.constant(-1, tf.int64)
    is_excluded = (columns >= _OFFSET) & (columns < _OFFSET // 2)
    return (
        tf.where(is_excluded, padding, columns),
        tf.where(is_excluded, columns - _OFFSET, padding),
    )


def ranks_without(
    ranks: tf.Tensor,
    scores: tf.Tensor,
    labels: tf.Tensor,
    excluded: tf.Tensor,
    is_new: tf.Tensor,
    num_classes: int,
) -> tf.Tensor:
    """Returns the ranks of labels among the classes that are not excluded.

    It takes O(W log W) time per example.

    Args:
        ranks: int64 `[B, W]`, the ranks of the labels among all classes; `num_classes` at
            padding and where the score is NaN or -inf.
        scores: float32 `[B, W]`, which rank the labels and the excluded classes.
        labels: int64 `[B, W]`, -1 where there is none.
        excluded: int64 `[B, W]`, which may repeat; -1 where `labels` has one.
        is_new: bool `[B, W]`, marks the first occurrence of each excluded class.
        num_classes: The number of all classes.

    Returns:
        int64 `[B, W]`; `num_classes` also for labels that are excluded.
    """
    # The best come first, and of equal scores the lower id, as in `ranks`.
    by_id = tf.argsort(tf.maximum(labels, excluded), axis=1)
    comparable = tf.where(scores > NOTHING, scores, NOTHING)
    by_score = tf.argsort(
        tf.gather(comparable, by_id, batch_dims=1), axis=1, direction="DESCENDING", stable=True
    )
    order = tf.gather(by_id, by_score, batch_dims=1)
    ones = tf.gather(tf.cast(is_new, tf.int64), order, batch_dims=1)
    above = tf.cumsum(ones, axis=1, exclusive=True)
    above = tf.gather(above, tf.argsort(order, axis=1), batch_dims=1)
    unranked = tf.constant(num_classes, tf.int64)
    has_rank = (ranks < unranked) & ~are_among(labels, excluded)
    return tf.where(has_rank, ranks - above, unranked)
