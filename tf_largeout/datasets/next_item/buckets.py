"""Batches of sequences of similar length."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_largeout.datasets.pipeline import epochs

NUM_WIDTHS = 8  # More widths would save little padding, and each is one more shape for kernels.


@dataclasses.dataclass(frozen=True)
class Buckets:
    """Sequences grouped by length, and the groups divided into batches.

    Attributes:
        bucket: int64 `[num_sequences]`, the bucket of each sequence.
        starts: int64 `[num_batches + 1]`. Of the sequences sorted by bucket, batch `i` has
            those from `starts[i]` to `starts[i + 1]`.
        widths: int64 `[num_batches]`, the length of the longest sequence in the bucket of each
            batch.
    """

    bucket: np.ndarray
    starts: np.ndarray
    widths: np.ndarray

    @classmethod
    def of(cls, lengths: np.ndarray, sizes: np.ndarray, batch_size: int) -> "Buckets":
        """Groups sequences into at most `NUM_WIDTHS` buckets.

        Args:
            lengths: int64 `[num_sequences]`, each at least 1.
            sizes: int64 `[num_sequences]`. Ones give batches of an equal number of sequences,
                `lengths` batches of an equal number of items.
            batch_size: The maximum total size of a batch is this number times the mean of
                `sizes`.
        """
        most = batch_size * sizes.mean()
        widths = bucket_widths(lengths, sizes, most, NUM_WIDTHS)
        bucket = np.searchsorted(widths, lengths)
        counts, total = np.bincount(bucket), np.bincount(bucket, sizes)
        num_batches = np.minimum(np.ceil(total / most).astype(np.int64), counts)
        firsts = [
            end - count + np.arange(number) * count // number
            for end, count, number in zip(np.cumsum(counts), counts, num_batches, strict=True)
        ]
        starts = np.concatenate([*firsts, [len(lengths)]])
        return cls(bucket, starts, np.repeat(widths, num_batches))


def bucket_widths(
    lengths: np.ndarray, sizes: np.ndarray, least: float, num_widths: int
) -> np.ndarray:
    """Returns the widths of the buckets with the least padding.

    Args:
        lengths: int64 `[num_sequences]`, each at least 1.
        sizes: int64 `[num_sequences]`.
        least: Minimum total size of each bucket, if there are several buckets.
        num_widths: Maximum number of buckets.

    Returns:
        int64 `[num_buckets]`, increasing: the length of the longest sequence of each bucket.
    """
    longest = int(lengths.max())
    number = np.cumsum(np.bincount(lengths))  # of sequences of at most this length
    size = np.cumsum(np.bincount(lengths, sizes))
    least = min(least, size[-1])
    # positions[k, w]: the fewest positions of all sequences up to length w in k buckets.
    positions = np.full([num_widths + 1, longest + 1], np.inf)
    positions[0, 0] = 0
    previous = np.zeros(positions.shape, np.int64)
    for width in range(1, longest + 1):
        last = (number[width] - number[:width]) * float(width)
        last[size[width] - size[:width] < least] = np.inf
        totals = positions[:-1, :width] + last
        positions[1:, width] = totals.min(axis=1)
        previous[1:, width] = totals.argmin(axis=1)
    widths = [longest]
    for buckets in range(int(positions[:, longest].argmin()), 1, -1):
        widths.append(previous[buckets, widths[-1]])
    return np.array(widths[::-1])


def batches_by_length(
    buckets: Buckets,
    shuffle_seed: int | None,
    gather: Callable[[tf.Tensor, tf.Tensor], Any],
) -> tf.data.Dataset:
    """Returns a dataset of the batches of `buckets`, each gathered from memory in one call.

    Args:
        buckets: The batches.
        shuffle_seed: An integer: each epoch shuffles the sequences of each bucket, and then the
            batches. All runs with this integer have the same epochs. None sorts by bucket.
        gather: Function that returns a batch, from indices of sequences and the width, int64.
    """
    num_batches = len(buckets.widths)
    with tf.device("CPU:0"):
        bucket, starts = tf.constant(buckets.bucket), tf.constant(buckets.starts)
        widths = tf.constant(buckets.widths)
        sequences = tf.range(len(buckets.bucket), dtype=tf.int64)
        numbers = tf.range(num_batches, dtype=tf.int64)

    def epoch(seed: tf.Tensor | None) -> tf.data.Dataset:
        order, turns = sequences, numbers
        if seed is not None:
            order, turns = (
                tf.random.experimental.stateless_shuffle(
                    values, tf.random.experimental.stateless_fold_in(seed, i)
                )
                for i, values in enumerate((sequences, numbers))
            )
        order = tf.gather(order, tf.argsort(tf.gather(bucket, order), stable=True))
        return tf.data.Dataset.from_tensor_slices(turns).map(
            lambda i: gather(order[starts[i] : starts[i + 1]], widths[i])
        )

    return epochs(epoch, num_batches, shuffle_seed)
