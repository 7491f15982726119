"""Counts of classes, from labels, and weights computed from counts."""

from collections.abc import Iterable

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
    """Counts how often each class occurs.

    Args:
        data: Integer labels of any shape, padded with -1 (array, tensor, ragged tensor), or
            a `tf.data.Dataset` of them or of tuples `(x, y, ...)` with labels `y`.
        steps: Number of elements to take from a dataset; needed if it is infinite.

    Returns:
        float64 `[largest label + 1]`.

    Raises:
        ValueError: If `data` contains no labels, if some labels are not class ids, or if the
            dataset is infinite and `steps` is None.
    """
    counts = np.zeros(0)
    for labels in batches(data, steps):
        if isinstance(labels, tf.RaggedTensor):
            labels = labels.flat_values
        ids, occurrences = np.unique(as_ids(labels), return_counts=True)
        if ids.size and ids[0] == -1:
            ids, occurrences = ids[1:], occurrences[1:]
        if ids.size and ids[-1] >= counts.size:
            counts = np.pad(counts, (0, max(ids[-1] + 1, 2 * counts.size) - counts.size))
        counts[ids] += occurrences
    if not counts.any():
        raise ValueError("Cannot count labels: `data` contains none.")
    return np.trim_zeros(counts, "b")


def batches(data: TensorLike | tf.data.Dataset, steps: int | None) -> Iterable[TensorLike]:
    """Returns the labels of `data` in batches, for any argument of `count_labels`."""
    if not isinstance(data, tf.data.Dataset):
        return [data]
    if steps is not None:
        data = data.take(steps)
    elif data.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ValueError(
            "The dataset is infinite: pass `steps`, the number of elements to count."
        )
    return (element[1] if isinstance(element, tuple) else element for element in data)


def as_ids(labels: TensorLike) -> np.ndarray:
    """Converts labels to int64 of the same shape, each a class id or -1.

    Raises:
        ValueError: If they are not integers, below -1, or too large for any layer.
    """
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
    """Returns weights `max(count, floor) ** distortion`, up to a factor, all positive.

    The floor is 1, or the smallest positive count if that is below 1.
    """
    floor = min(1.0, counts[counts > 0].min())
    weights = (np.maximum(counts, floor) / counts.max()) ** distortion
    return np.maximum(weights, np.finfo(np.float64).tiny)
