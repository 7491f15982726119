"""Counts of labels, and of pairs of consecutive labels in sequences."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_largeout.arguments import MOST_CLASSES
from tf_largeout.types import TensorLike

_FORMS = (
    "Labels must be integer class ids: an array or tensor of any shape, padded with -1; a "
    "ragged tensor, such as tf.ragged.constant(rows, dtype=tf.int64); or a tf.data.Dataset of "
    "these or of tuples (x, y)."
)


def count_labels(data: TensorLike | tf.data.Dataset, steps: int | None = None) -> np.ndarray:
    """Returns the counts of `CountedSampler.adapt`, float64 `[largest label + 1]`."""
    classes = _Counter()
    for labels in _batches(data, steps):
        if isinstance(labels, tf.RaggedTensor):
            labels = labels.flat_values
        ids = _as_ids(labels)
        classes.add(ids[ids >= 0])
    return classes.counts().astype(np.float64)


def _batches(data: TensorLike | tf.data.Dataset, steps: int | None) -> Iterable[TensorLike]:
    if not isinstance(data, tf.data.Dataset):
        return [data]
    if steps is not None:
        data = data.take(steps)
    elif data.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ValueError(
            "The dataset is infinite: pass `steps`, the number of elements to count."
        )
    return (element[1] if isinstance(element, tuple) else element for element in data)


def _as_ids(labels: TensorLike) -> np.ndarray:
    """Converts labels to int64 of the same shape, each a class id or -1."""
    try:
        ids = np.asarray(labels)
    except ValueError as error:
        raise ValueError(f"{_FORMS} Received rows of several lengths: {error}") from error
    if not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(
            f"{_FORMS} Received labels of type {type(labels).__name__}, of dtype {ids.dtype}."
        )
    ids = ids.astype(np.int64)
    if ids.size and ids.min() < -1:
        raise ValueError(f"Labels must be class ids, or -1 for padding. Received: {ids.min()}.")
    if ids.size and ids.max() >= MOST_CLASSES:
        raise ValueError(
            f"Labels must be class ids, below {MOST_CLASSES:,}, the most classes that a layer "
            f"has. Received: {ids.max()}."
        )
    return ids


def check_counts(counts: TensorLike) -> np.ndarray:
    """Converts counts to float64. Raises a ValueError if they are not valid."""
    try:
        counts = np.array(counts, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "`counts` must be one number per class. Received: a value of type "
            f"{type(counts).__name__}: {error}"
        ) from error
    if counts.ndim != 1 or counts.size == 0:
        raise ValueError(
            f"`counts` must be one number per class. Received shape {counts.shape}."
        )
    bad = ~(np.isfinite(counts) & (counts >= 0))
    if bad.any():
        where = int(np.argmax(bad))
        raise ValueError(
            f"`counts` must be finite and not negative. Received {counts[where]} for class "
            f"{where}."
        )
    if not counts.any():
        raise ValueError("`counts` must not be all zero.")
    return counts


def distorted(counts: np.ndarray, distortion: float) -> np.ndarray:
    """Returns `max(count, floor) ** distortion`, up to a factor, see `UnigramSampler`."""
    floor = min(1.0, counts[counts > 0].min())
    weights = (np.maximum(counts, floor) / counts.max()) ** distortion
    return np.maximum(weights, np.finfo(np.float64).tiny)


_BITS = 32  # bits of a class id
_PAIRS_AT_ONCE = 2**20


class LabelPairs(NamedTuple):
    """How often classes, and pairs of them, occur in sequences of labels; all int64."""

    first: np.ndarray  # [num_pairs]
    second: np.ndarray  # the class after `first`; pairs are sorted by both
    times: np.ndarray  # how often that pair occurs
    counts: np.ndarray  # [largest label + 1], how often each class occurs

    def most_frequent(self, num_pairs: int) -> "LabelPairs":
        """Keeps the `num_pairs` most frequent pairs, or all if there are fewer."""
        if len(self.times) <= num_pairs:
            return self
        kept = np.sort(np.argsort(-self.times, kind="stable")[:num_pairs])
        return LabelPairs(self.first[kept], self.second[kept], self.times[kept], self.counts)


def count_pairs(data: TensorLike | tf.data.Dataset, steps: int | None = None) -> LabelPairs:
    """Counts pairs as `BigramSampler.adapt`, in O(distinct pairs + classes) memory.

    No pair spans a -1 or the end of a sequence.
    """
    pairs, classes = _Counter(), _Counter()
    for labels in _batches(data, steps):
        if isinstance(labels, tf.RaggedTensor):
            labels = tf.cast(labels, tf.int64).to_tensor(-1)
        ids = np.atleast_1d(_as_ids(labels))
        before, after = ids[..., :-1], ids[..., 1:]
        is_pair = (before >= 0) & (after >= 0)
        pairs.add((before[is_pair] << _BITS) | after[is_pair])
        classes.add(ids[ids >= 0])
    keys, times = pairs.merged()
    counts = classes.counts()
    if not keys.size:
        raise ValueError(
            "Cannot count pairs of labels: `data` contains no consecutive labels. Pass "
            "sequences of labels, `[batch, time]`."
        )
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

    def counts(self) -> np.ndarray:
        """Returns how often each number up to the largest occurs, int64."""
        ids, times = self.merged()
        if not ids.size:
            raise ValueError("Cannot count labels: `data` contains none.")
        counts = np.zeros(ids[-1] + 1, np.int64)
        counts[ids] = times
        return counts
