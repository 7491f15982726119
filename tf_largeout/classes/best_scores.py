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
    """Returns the `k` classes with the highest scores, `[B, k]`, best first.

    If scores are equal, the class that comes first wins. `keys`, `[B, m]`, rank the classes
    instead of the scores.
    """
    best, places = tf.math.top_k(scores if keys is None else keys, k)
    if keys is not None:
        best = tf.gather(scores, places, batch_dims=1)
    return best, tf.gather(ids, places, batch_dims=1)


def are_large(queries: tf.Tensor) -> tf.Tensor:
    """Returns whether scores of queries `[..., dim]` may overflow, bool `[...]`."""
    return tf.reduce_sum(tf.abs(queries), axis=-1) > _LARGE


def without_overflow(queries: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """Returns scores `[B, k]`, or raises an InvalidArgumentError if one of them has overflowed.

    A score has overflowed if it is infinite, or -infinite for a large query (see `are_large`).
    For other queries, -infinity may be the bias of a class.
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
    """Returns the `k` best classes of a search that are not excluded, as `best_left` does.

    Of the best `k + n` classes, at most `n` are excluded. `search` is a function of the number
    of classes to find, at most `most`.
    """
    count = k if exclude is None else k + tf.shape(exclude)[1]
    return best_left(*search(tf.minimum(count, most)), exclude, k)


def best_left(
    scores: tf.Tensor, ids: tf.Tensor, exclude: tf.Tensor | None, k: int | tf.Tensor
) -> Best:
    """Drops the excluded classes from ranked results, and returns the first `k` of the others.

    `ids`, `[B, m]`, are -1 where there is no class, last. `exclude` is int64 `[B, n]`; negative
    ids exclude nothing. The results, `[B, k]`, keep their order and are padded with -inf and
    -1.
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
    """Returns whether each of `ids` `[B, m]` is in its row of `exclude`; false for ids < 0."""
    # Sorted lists take O(m + n) memory per example. Comparing all pairs would take O(m n).
    lowest = tf.pad(exclude, [[0, 0], [1, 0]], constant_values=exclude.dtype.min)
    ordered = tf.sort(lowest, axis=1)
    places = tf.searchsorted(ordered, ids, side="right") - 1
    return (ids >= 0) & (tf.gather(ordered, places, batch_dims=1) == ids)
