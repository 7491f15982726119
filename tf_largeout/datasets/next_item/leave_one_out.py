"""The split of users' histories: train on all items but the last two of each user."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_largeout.arguments import int64_or_none, whole_number
from tf_largeout.datasets.pipeline import Rows, epochs
from tf_largeout.datasets.ragged import Ragged

HELD_OUT = 2  # The last item of a user is for testing, the one before it for validation.
NUM_WIDTHS = 8  # More widths would save little padding, and each is one more shape for kernels.

Labels = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """The histories and the next items of the users of a validation or test split.

    Attributes:
        users: int64 `[num_users]`, positions in `Interactions.user_names`.
        history: int32 `[num_users, length]`, the newest items before the target, padded with 0
            on the left.
        target: int64 `[num_users]`, the next item.
    """

    users: np.ndarray
    history: np.ndarray
    target: np.ndarray
    _before: Ragged = dataclasses.field(repr=False)

    @functools.cached_property
    def seen(self) -> np.ndarray:
        """int32 `[num_users, n + 1]`: all items before the target, padded with 0.

        Each row contains 0, so `exclude=seen` also excludes the padding. The array takes
        `4 * num_users * n` bytes, where n is the length of the longest history. Pass
        `num_evaluated` to `leave_one_out` if this is too much.
        """
        return self._before.padded(1 + int(self._before.lengths.max()), 0)

    def batches(self, batch_size: int, labels: Labels | None = None) -> tf.data.Dataset:
        """Returns batches `(history, labels)` of users with histories of similar length.

        Use them for `evaluate`. Histories are int32 `[batch, width]`, without the columns that
        contain only padding. There are at most 8 widths, in increasing order. Models must not
        depend on the padding on the left: see the guide "Next item".

        Args:
            batch_size: Maximum number of users per batch.
            labels: A function that returns the labels of a batch from `target`, int64
                `[batch]`, and `seen`, int32 `[batch, n]`. `tflo.metrics.with_exclude` ranks
                only items that the user has not seen. None, the default, returns `target`.

        Raises:
            ValueError: If `batch_size` is not a positive integer.
        """
        batch_size = whole_number("batch_size", batch_size)
        with tf.device("CPU:0"):
            history, target = tf.constant(self.history), tf.constant(self.target)
        before = Rows(self._before, tf.int32)

        def batch(rows: tf.Tensor, width: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            y = tf.gather(target, rows)
            if labels is not None:
                y = labels(y, tf.pad(before.padded(rows), [[0, 0], [0, 1]]))
            return tf.gather(history, rows)[:, -width:], y

        lengths = _lengths(self.history)
        buckets = Buckets(lengths, np.ones_like(lengths), batch_size)
        return batches_by_length(buckets, None, batch)

    def by_length(self, max_parts: int = 3) -> list["HeldOut"]:
        """Divides the users into parts with histories of similar length.

        Use it for `predict_top_k`, which takes arrays. The `history` of each part has no
        columns that contain only padding, and each user is in one part.

        Args:
            max_parts: Maximum number of parts. Defaults to 3, because `predict_top_k` traces
                the model for each part.

        Raises:
            ValueError: If `max_parts` is not a positive integer.
        """
        lengths = _lengths(self.history)
        max_parts = whole_number("max_parts", max_parts)
        widths = bucket_widths(lengths, np.ones_like(lengths), 1, max_parts)
        part, parts = np.searchsorted(widths, lengths), []
        for i, width in enumerate(widths):
            rows = np.flatnonzero(part == i)
            history, before = self.history[rows, -width:], self._before.take(rows)
            parts.append(HeldOut(self.users[rows], history, self.target[rows], before))
        return parts


@dataclasses.dataclass(frozen=True)
class LeaveOneOut:
    """The result of `Interactions.leave_one_out`.

    Attributes:
        x: int32 `[num_inputs, length]`, the inputs of training, padded with 0 on the left.
        y: int64 `[num_inputs, length]`, the item that follows each position, and -1 at padding.
        validation: The second-last item of each evaluated user.
        test: The last item of each evaluated user. Its history contains the validation item.
    """

    x: np.ndarray
    y: np.ndarray
    validation: HeldOut
    test: HeldOut

    def batches(self, batch_size: int, shuffle_seed: int | None = 0) -> tf.data.Dataset:
        """Returns shuffled training batches `(x, y)`, each of inputs of similar length.

        A model spends less time on padding than with batches of random inputs. `x` and `y` are
        `[batch, width]`, without the columns that contain only padding. There are at most 8
        widths. Models must not depend on the padding on the left: see the guide "Next item".
        Pass `shuffle=False` to `fit`, or Keras warns that it does not shuffle a dataset.

        All batches have about the same number of items, so batches of short inputs have more
        inputs: losses divide by the number of items in the batch.

        Args:
            batch_size: Inputs per batch, on average.
            shuffle_seed: 64-bit integer for an order that differs between epochs, but not
                between runs. Defaults to 0. None sorts the inputs by width.

        Raises:
            ValueError: If an argument is invalid.
        """
        batch_size = whole_number("batch_size", batch_size)
        shuffle_seed = int64_or_none("shuffle_seed", shuffle_seed)
        with tf.device("CPU:0"):
            x, y = tf.constant(self.x), tf.constant(self.y)

        def batch(rows: tf.Tensor, width: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.gather(x, rows)[:, -width:], tf.gather(y, rows)[:, -width:]

        lengths = _lengths(self.x)
        return batches_by_length(Buckets(lengths, lengths, batch_size), shuffle_seed, batch)


def leave_one_out(
    rows: Ragged, length: int, num_evaluated: int | None, seed: int
) -> LeaveOneOut:
    """Splits histories; see `Interactions.leave_one_out`."""
    users = np.flatnonzero(rows.lengths > HELD_OUT)
    x, y = _training_windows(rows, length)
    if not len(users) or not len(x):
        raise ValueError(
            "Expected users with at least three items: one for training, one for validation "
            f"and one for testing. The longest of {len(rows):,} histories has "
            f"{int(rows.lengths.max(initial=0))}."
        )
    if num_evaluated is not None and num_evaluated < len(users):
        chosen = np.random.default_rng(seed).choice(len(users), num_evaluated, replace=False)
        users = users[np.sort(chosen)]
    validation, test = (_held_out(rows, users, length, back) for back in (HELD_OUT, 1))
    return LeaveOneOut(x, y, validation, test)


def training_lengths(rows: Ragged) -> np.ndarray:
    """Returns int64 `[num_users]`: how many items of each user are for training.

    Users with fewer than three items are not evaluated, so all their items are for training.
    """
    lengths = rows.lengths
    return np.where(lengths > HELD_OUT, lengths - HELD_OUT, lengths)


def _lengths(histories: np.ndarray) -> np.ndarray:
    """Returns int64 `[n]`: the number of columns from the oldest item to the last column."""
    is_item = histories != 0
    return np.where(is_item.any(axis=1), histories.shape[1] - is_item.argmax(axis=1), 1)


def _training_windows(rows: Ragged, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Divides the training part of each history into inputs. Only the oldest one is padded."""
    num_inputs = np.maximum(training_lengths(rows) - 1, 0)
    num_windows = -(-num_inputs // length)
    # The inputs of each user counted from the newest one, 0, which ends the last window.
    ends = np.cumsum(num_inputs)
    age = np.repeat(ends, num_inputs) - 1 - np.arange(num_inputs.sum())
    window = np.repeat(np.cumsum(num_windows), num_inputs) - 1 - age // length
    column = length - 1 - age % length
    source = np.repeat(rows.offsets[:-1] + num_inputs, num_inputs) - 1 - age
    x = np.zeros((num_windows.sum(), length), np.int32)
    y = np.full(x.shape, -1, np.int64)
    x[window, column] = rows.values[source]
    y[window, column] = rows.values[source + 1]
    return x, y


def _held_out(rows: Ragged, users: np.ndarray, length: int, back: int) -> HeldOut:
    """Returns the split whose targets are the items at position `-back` of the histories."""
    chosen = rows.take(users)
    targets = chosen.values[chosen.offsets[1:] - back].astype(np.int64)
    is_before = chosen.places < np.repeat(chosen.lengths - back, chosen.lengths)
    before = Ragged.from_lengths(chosen.values[is_before], chosen.lengths - back)
    columns = np.arange(-length, 0)
    is_item = -columns <= before.lengths[:, None]
    places = np.where(is_item, before.offsets[1:, None] + columns, 0)
    history = np.where(is_item, before.values[places], 0).astype(np.int32)
    return HeldOut(users, history, targets, before)


class Buckets:
    """At most `NUM_WIDTHS` groups of sequences of similar `lengths`, divided into batches.

    The maximum total size of a batch is `batch_size` times the mean of `sizes`: ones for
    batches of equally many sequences, `lengths` for batches of equally many items.

    Attributes:
        bucket: int64 `[num_sequences]`, the bucket of each sequence.
        starts: int64 `[num_batches + 1]`, where batches start, of sequences sorted by bucket.
        widths: int64 `[num_batches]`, the longest length in the bucket of each batch.
    """

    def __init__(self, lengths: np.ndarray, sizes: np.ndarray, batch_size: int) -> None:
        most = batch_size * sizes.mean()
        widths = bucket_widths(lengths, sizes, most, NUM_WIDTHS)
        self.bucket = np.searchsorted(widths, lengths)
        counts, total = np.bincount(self.bucket), np.bincount(self.bucket, sizes)
        num_batches = np.minimum(np.ceil(total / most).astype(np.int64), counts)
        firsts = [
            end - count + np.arange(number) * count // number
            for end, count, number in zip(np.cumsum(counts), counts, num_batches, strict=True)
        ]
        self.starts = np.concatenate([*firsts, [len(lengths)]])
        self.widths = np.repeat(widths, num_batches)


def bucket_widths(
    lengths: np.ndarray, sizes: np.ndarray, least: float, num_widths: int
) -> np.ndarray:
    """Returns the widths of at most `num_widths` buckets with the least padding, ascending.

    `least` is the minimum total size of each of several buckets. A width is the length of the
    longest sequence of the bucket.
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
    buckets: Buckets, shuffle_seed: int | None, gather: Callable[[tf.Tensor, tf.Tensor], Any]
) -> tf.data.Dataset:
    """Returns a dataset of the batches of `buckets`, each gathered from memory in one call.

    `shuffle_seed` orders the sequences in a bucket, and the batches; None sorts by bucket.
    `gather` returns a batch, from indices of sequences and the width, int64.
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
