"""Measures how many lists of an inverted file a query must search for a given recall."""

import math
import warnings
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tf_largeout.retrieval.listed_rows import ListedRows, Lists

MEASURED_K = (1, 10, 100)
_QUERIES_AT_A_TIME = 64
_MANY_LISTS = 100


def measure(searched: ListedRows, queries: tf.Tensor, target: float) -> dict[int, int]:
    """Returns the smallest numbers of lists that find a share `target` of the best `k` classes.

    The first estimate is computed from the exact results: in which lists they are, and in which
    order a query searches lists. Then real searches correct the estimate. They can differ from
    it, because they order lists by 8-bit means and may miss a few classes in the lists that
    they search. A class whose score equals that of the last of the best `k` counts as found.

    Args:
        searched: The inverted file.
        queries: float32 `[n, dim]`, n at least 1.
        target: In (0, 1].

    Returns:
        A number of lists for each `k` in `MEASURED_K`. A `k` above the number of classes is
        replaced by the number of classes.
    """
    lists = searched.lists()
    num_classes = len(lists.list_of_class)
    measured = sorted({min(k, num_classes) for k in MEASURED_K})
    scores, ids = searched.exact(queries, measured[-1])
    needed = _needed(lists, queries.numpy(), ids)
    return {
        k: _least_of(searched, queries, scores[:, :k], needed[:, :k], target) for k in measured
    }


def _least_of(
    searched: ListedRows,
    queries: tf.Tensor,
    scores: np.ndarray,
    needed: np.ndarray,
    target: float,
) -> int:
    """Returns the number of lists for one `k`, from `scores` and `needed` of the best `k`."""
    k, last = scores.shape[1], math.ceil(target * scores.size - 1e-6) - 1
    lowest = with_rounding(scores[:, -1:])

    def is_enough(number: int) -> bool:
        found = searched.found(queries, k, number)
        return bool((found >= lowest).mean() >= target)

    guess = int(np.partition(needed.ravel(), last)[last])
    return _least(guess, searched.num_lists, is_enough)


def _least(guess: int, most: int, is_enough: Callable[[int], bool]) -> int:
    """Returns about the smallest number that is enough, searching near `guess`."""
    number = min(guess, most)
    if number == most or is_enough(number):
        while number > 1 and is_enough(number - 1):
            number -= 1
        return number
    while number < most and not is_enough(number):
        number += 1 + number // 50
    return min(number, most)


def warn_if_many(numbers: dict[int, int], num_lists: int, target: float) -> None:
    """Warns if a query for a few classes must search most of many lists."""
    k = min(max(numbers), 10)
    if target < 1 and num_lists >= _MANY_LISTS and 2 * numbers[k] > num_lists:
        warnings.warn(
            f"To find {target:.0%} of the best {k} classes, an InvertedFileIndex of these rows "
            f"must search {numbers[k]} of {num_lists} lists. Use a BruteForceIndex: it is "
            "exact and takes about as long.",
            stacklevel=3,
        )


def _needed(lists: Lists, queries: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Returns how many lists a query must search to find each of its classes `ids`, `[n, k]`.

    A search of P lists stops before the list at place r if r is P, or if the lists before it
    have as many members as P lists of mean size.
    """
    mean_size = math.ceil(lists.sizes.mean())
    needed = np.empty(ids.shape, np.int64)
    for first in range(0, len(queries), _QUERIES_AT_A_TIME):
        part = slice(first, first + _QUERIES_AT_A_TIME)
        scores = queries[part] @ lists.means.T + lists.mean_bias
        order = np.argsort(-scores, axis=1, kind="stable")
        place = np.empty_like(order)
        np.put_along_axis(place, order, np.arange(len(lists.sizes))[np.newaxis], axis=1)
        before = np.cumsum(lists.sizes[order], axis=1) - lists.sizes[order]
        places = np.take_along_axis(place, lists.list_of_class[ids[part]], axis=1)
        members = np.take_along_axis(before, places, axis=1)
        needed[part] = 1 + np.maximum(places, members // mean_size)
    return needed


def with_rounding(scores: np.ndarray) -> np.ndarray:
    """Lowers scores by the error that another order of additions can cause."""
    return scores - 1e-5 * np.maximum(np.abs(scores), 1e-30)
