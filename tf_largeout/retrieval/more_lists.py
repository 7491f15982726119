"""Searches more lists for queries whose lists have too few classes."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

Tensors = tuple[tf.Tensor, ...]
_TIMES_AS_MANY = 4


def numbers_of_lists(first: int, num_lists: int) -> list[int]:
    """Returns the numbers of lists to search in each attempt, rising to `num_lists`."""
    numbers = []
    while first < num_lists:
        numbers.append(first)
        first *= _TIMES_AS_MANY
    return [*numbers, num_lists]


def search_until_full(
    search: Callable[[tf.Tensor, tf.Tensor | None, Any], Tensors],
    queries: tf.Tensor,
    exclude: tf.Tensor | None,
    numbers: Sequence[int | tf.Tensor],
    mean_size: float,
) -> Tensors:
    """Returns the results of `search`, with as many lists per query as it needs.

    A query searches the next number of lists if its lists have too few classes, or might have
    too few because of its exclusions. So no result depends on other queries.

    Args:
        search: A function of queries, their exclusions and a number of lists. It returns
            tensors `[B, m]`, the last of which has ids, padded with -1.
        queries: `[B, dim]`.
        exclude: int64 `[B, n]`, where negative ids exclude nothing; or None.
        numbers: Rising numbers of lists, one per attempt.
        mean_size: Mean number of classes in a list.
    """
    found = search(queries, exclude, numbers[0])
    if len(numbers) == 1:
        return found
    ids = found[-1]
    is_short = tf.reduce_any(ids < 0, axis=1)
    if exclude is not None:
        excluded = tf.math.count_nonzero(exclude >= 0, axis=1, dtype=tf.int32)
        members = tf.cast(numbers[0], tf.float32) * mean_size
        too_few = tf.cast(excluded + tf.shape(ids)[1], tf.float32) > members
        is_short |= (excluded > 0) & too_few
    short = tf.where(is_short)

    def search_more() -> Tensors:
        some = None if exclude is None else tf.gather_nd(exclude, short)
        more = search_until_full(
            search, tf.gather_nd(queries, short), some, numbers[1:], mean_size
        )
        pairs = zip(found, more, strict=True)
        return tuple(tf.tensor_scatter_nd_update(one, short, other) for one, other in pairs)

    return tf.cond(tf.size(short) > 0, search_more, lambda: found)
