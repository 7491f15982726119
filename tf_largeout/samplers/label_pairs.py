"""Counts of classes and of consecutive pairs of classes in sequences."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_largeout.samplers.label_counts import as_ids, batches
from tf_largeout.types import TensorLike

_BITS = 32  # bits of a class id
_PAIRS_AT_ONCE = 2**20


class LabelPairs(NamedTuple):
    """How often classes, and pairs of them, occur in sequences of labels.

    Attributes:
        first: int64 `[num_pairs]`.
        second: int64 `[num_pairs]`, the class after `first`; pairs are sorted by both.
        times: int64 `[num_pairs]`, how often that pair occurs.
        counts: int64 `[largest label + 1]`, how often each class occurs.
    """

    first: np.ndarray
    second: np.ndarray
    times: np.ndarray
    counts: np.ndarray

    def most_frequent(self, num_pairs: int) -> "LabelPairs":
        """Keeps the `num_pairs` most frequent pairs, or all if there are fewer."""
        if len(self.times) <= num_pairs:
            return self
        kept = np.sort(np.argsort(-self.times, kind="stable")[:num_pairs])
        return LabelPairs(self.first[kept], self.second[kept], self.times[kept], self.counts)


def count_pairs(data: TensorLike | tf.data.Dataset, steps: int | None = None) -> LabelPairs:
    """Counts classes and pairs in sequences of labels.

    Memory is O(distinct pairs + classes).

    Args:
        data: Integer labels `[..., time]`, padded with -1 (array, tensor, ragged tensor), or a
            `tf.data.Dataset` of them or of tuples `(x, y, ...)` with labels `y`. No pair
            spans a -1 or the end of a sequence.
        steps: Number of elements to take from a dataset; needed if it is infinite.

    Raises:
        ValueError: If `data` contains no pair of consecutive labels, if some labels are not
            class ids, or if the dataset is infinite and `steps` is None.
    """
    pairs, classes = _Counter(), _Counter()
    for labels in batches(data, steps):
        if isinstance(labels, tf.RaggedTensor):
            labels = tf.cast(labels, tf.int64).to_tensor(-1)
        ids = np.atleast_1d(as_ids(labels))
        before, after = ids[..., :-1], ids[..., 1:]
        is_pair = (before >= 0) & (after >= 0)
        pairs.add((before[is_pair] << _BITS) | after[is_pair])
        classes.add(ids[ids >= 0])
    keys, times = pairs.merged()
    ids, occurrences = classes.merged()
    if not ids.size:
        raise ValueError("Cannot count labels: `data` contains none.")
    if not keys.size:
        raise ValueError(
            "Cannot count pairs of labels: `data` contains no consecutive labels. Pass "
            "sequences of labels, `[batch, time]`."
        )
    counts = np.zeros(ids[-1] + 1, np.int64)
    counts[ids] = occurrences
    return LabelPairs(keys >> _BITS, keys & (2**_BITS - 1), times, counts)


class _Counter:
    """Counts how often each number occurs. Merges its parts when they have become large."""

    def __init__(self) -> None:
        self._parts: list[tuple[np.ndarray, np.ndarray]] = []
        self._size = self._merged_size = 0

    def add(self, numbers: np.ndarray) -> None:
        self._parts.append(np.unique(numbers, return_counts=True))
        self._size += len(self._parts[-1][0])
        if self._size > 2 * self._merged_size + _PAIRS_AT_ONCE:
            self.merged()

    def merged(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the distinct numbers, in rising order, and how often each occurs."""
        numbers, times = (
            np.concatenate([np.zeros(0, np.int64), *(part[i] for part in self._parts)])
            for i in (0, 1)
        )
        numbers, places = np.unique(numbers, return_inverse=True)
        merged = np.zeros(len(numbers), np.int64)
        np.add.at(merged, places, times)
        self._parts, self._size = [(numbers, merged)], len(numbers)
        self._merged_size = self._size
        return numbers, merged
