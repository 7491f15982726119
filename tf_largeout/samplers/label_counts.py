"""Counts of labels, and of pairs of consecutive labels in sequences."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_largeout.class_counts import Counter, as_ids, count_ids
from tf_largeout.types import TensorLike

_FORMS = (
    "Labels must be integer class ids: an array or tensor of any shape, padded with -1; a "
    "ragged tensor, such as tf.ragged.constant(rows, dtype=tf.int64); or a tf.data.Dataset of "
    "these or of tuples (x, y)."
)


def count_labels(data: TensorLike | tf.data.Dataset, steps: int | None = None) -> np.ndarray:
    """Returns the counts of `CountedSampler.adapt`, float64 `[largest label + 1]`."""
    return count_ids(map(_flat, _batches(data, steps)), _FORMS)


def _flat(labels: TensorLike) -> TensorLike:
    return labels.flat_values if isinstance(labels, tf.RaggedTensor) else labels


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


_BITS = 32  # bits of a class id


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
    pairs, classes = Counter(), Counter()
    for labels in _batches(data, steps):
        if isinstance(labels, tf.RaggedTensor):
            labels = tf.cast(labels, tf.int64).to_tensor(-1)
        ids = np.atleast_1d(as_ids(labels, _FORMS))
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
