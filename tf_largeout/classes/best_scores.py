"""Ranks scored classes and drops excluded ones, for layers, indexes and exports."""

from collections.abc import Callable

import tensorflow as tf

from tf_largeout import checks

NOTHING = -float("inf")  # the score where there is no class
# If the magnitudes of a query have a larger sum, its scores may exceed float32.
_LARGE = 2.0**64

Best = tuple[tf.Tensor, tf.Tensor]


def highest(
    scores: tf.Tensor, ids: tf.Tensor, k: int | tf.Tensor, keys: tf.Tensor | None = None
) -> Best:
    """Returns the `k` classes with the highest scores.

    If scores are equal, the class that comes first wins. To merge the best results of several
    blocks or shards of classes, concatenate them and call this function.

    Args:
        scores: float32 `[B, m]`.
        ids: Integer `[B, m]`, the classes.
        k: At most m.
        keys: `[B, m]`, ranks the classes instead of `scores`; or None.

    Returns:
        `(scores, ids)`: `[B, k]`, best first.
    """
    best, places = tf.math.top_k(scores if keys is None else keys, k)
    if keys is not None:
        best = tf.gather(scores, places, batch_dims=1)
    return best, tf.gather(ids, places, batch_dims=1)


def are_large(queries: tf.Tensor) -> tf.Tensor:
    """Returns whether scores of queries `[..., dim]` may overflow, bool `[...]`."""
    return tf.reduce_sum(tf.abs(queries), axis=-1) > _LARGE


def without_overflow(queries: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """Returns `scores`, or raises an error if one of them has overflowed.

    Args:
        queries: float32 `[B, dim]`, finite.
        scores: float32 `[B, k]`, scores of classes.

    Raises:
        tf.errors.InvalidArgumentError: If a score is infinite, or -infinite for a large query
            (see `are_large`). For other queries, -infinity may be the bias of a class.
    """
    is_low = are_large(queries)[:, tf.newaxis] & (scores == NOTHING)
    lost = tf.where((scores == -NOTHING) | is_low, scores, 0.0)
    message = "logits must not overflow: scale the features down"
    return checks.passed([checks.finite(lost, message)], scores)


def search_without(
    search: Callable[[tf.Tensor], Best],
    most: int | tf.Tensor,
    exclude: tf.Tensor | None,
    k: int | tf.Tensor,
) -> Best:
    """Returns the `k` best classes of a search that are not excluded.

    Of the best `k + n` classes, at most `n` are excluded.

    Args:
        search: A function of the number of classes to find. It returns scores and ids, best
            first.
        most: How many classes there are.
        exclude: int64 `[B, n]`, where negative ids exclude nothing; or None.
        k: At least 1.

    Returns:
        As `best_left`.
    """
    count = k if exclude is None else k + tf.shape(exclude)[1]
    return best_left(*search(tf.minimum(count, most)), exclude, k)


def best_left(
    scores: tf.Tensor, ids: tf.Tensor, exclude: tf.Tensor | None, k: int | tf.Tensor
) -> Best:
    """Drops the excluded classes from ranked results, and returns the first `k` of the others.

    Args:
        scores: float32 `[B, m]`, best first.
        ids: int64 `[B, m]`, their classes; -1 where there is none, last.
        exclude: int64 `[B, n]`, where negative ids exclude nothing; or None.
        k: At least 1.

    Returns:
        `(scores, ids)`: float32 and int64 `[B, k]`, in their order, padded with -inf and -1.
    """
    padding = [[0, 0], [0, k]]
    scores = tf.pad(scores, padding, constant_values=NOTHING)
    ids = tf.pad(ids, padding, constant_values=-1)
    if exclude is None:
        return scores[:, :k], ids[:, :k]
    width = tf.shape(ids)[1]
    order = tf.where(are_among(ids, exclude), width, tf.range(width))
    return highest(scores, ids, k, keys=-order)  # the padding is never excluded


def are_among(ids: tf.Tensor, exclude: tf.Tensor) -> tf.Tensor:
    """Returns, for each of `ids` `[B, m]`, whether it is in its row of `exclude` `[B, n]`.

    Negative ids are never excluded. The search in sorted lists takes O(m + n) memory per
    example. Comparing all pairs would take O(m n).
    """
    lowest = tf.pad(exclude, [[0, 0], [1, 0]], constant_values=exclude.dtype.min)
    ordered = tf.sort(lowest, axis=1)
    places = tf.searchsorted(ordered, ids, side="right") - 1
    return (ids >= 0) & (tf.gather(ordered, places, batch_dims=1) == ids)
