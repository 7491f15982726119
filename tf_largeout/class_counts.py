"""Counts of labels in NumPy, for the samplers of all backends."""

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from tf_largeout.arguments import MOST_CLASSES

_NUMBERS_AT_ONCE = 2**20


def count_ids(batches: Iterable[Any], forms: str) -> np.ndarray:
    """Returns how often each class labels an example, float64 `[largest label + 1]`.

    `batches` are arrays of labels, and `forms` is as in `as_ids`.
    """
    classes = Counter()
    for labels in batches:
        ids = as_ids(labels, forms)
        classes.add(ids[ids >= 0])
    return classes.counts().astype(np.float64)


def batches_of_labels(data: Any, steps: int | None) -> Iterable[Any]:
    """Returns the arrays of labels in an array, or in an iterable of arrays or of `(x, y)`.

    `steps` is the number of elements to take from an iterable; None for all.
    """
    is_list = isinstance(data, list | tuple) and not (data and _is_batch(data[0]))
    if is_list or hasattr(data, "__array__") or isinstance(data, int):
        return [data]
    cardinality = getattr(data, "cardinality", None)  # of a tf.data.Dataset
    if steps is None and cardinality is not None and int(cardinality()) == -1:
        raise ValueError(
            "The dataset is infinite: pass `steps`, the number of elements to count."
        )
    if not hasattr(data, "__iter__"):  # a keras.utils.PyDataset
        data = (data[place] for place in range(len(data)))
    elements = itertools.islice(data, steps)
    return (element[1] if _is_batch(element) else element for element in elements)


def _is_batch(element: Any) -> bool:
    return (
        isinstance(element, list | tuple) and len(element) > 1 and hasattr(element[1], "shape")
    )


def as_ids(labels: Any, forms: str) -> np.ndarray:
    """Converts labels to int64 of the same shape, each a class id or -1.

    The errors begin with `forms`, the accepted forms of labels.
    """
    try:
        ids = np.asarray(labels)
    except ValueError as error:
        raise ValueError(f"{forms} Received rows of several lengths: {error}") from error
    if not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(
            f"{forms} Received labels of type {type(labels).__name__}, of dtype {ids.dtype}."
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


def check_counts(counts: Any) -> np.ndarray:
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


class Counter:
    """Counts how often each number occurs. Merges its parts when they have become large."""

    def __init__(self) -> None:
        self._parts: list[tuple[np.ndarray, np.ndarray]] = []
        self._size = self._merged_size = 0

    def add(self, numbers: np.ndarray) -> None:
        self._parts.append(np.unique(numbers, return_counts=True))
        self._size += len(self._parts[-1][0])
        if self._size > 2 * self._merged_size + _NUMBERS_AT_ONCE:
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
