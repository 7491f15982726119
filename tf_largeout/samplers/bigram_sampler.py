"""Classes by how often they follow the previous class of a sequence."""

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import whole_number
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.sampled_values import SampledValues
from tf_largeout.samplers.count_tables import CountTables
from tf_largeout.samplers.label_pairs import LabelPairs, count_pairs
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.types import Config, TensorLike

_NO_PAIR = np.iinfo(np.int64).max  # above all keys


class _Before(NamedTuple):
    """Counts of the pairs that start with the previous class; int64 and float64 `[B, 1]`."""

    first_key: tf.Tensor  # the lowest key of a pair with this class
    start: tf.Tensor  # the sum of the counts of all earlier pairs
    total: tf.Tensor  # the sum of the counts of the pairs with this class
    scale: tf.Tensor  # the q of a class is the count of its pair times scale, plus
    backoff: tf.Tensor  # the frequency of the class times backoff


@keras.saving.register_keras_serializable(package="tf_largeout")
class BigramSampler(Sampler):
    """Draws classes by how often they follow the previous label of a sequence.

        q_c = (count(p, c) + distinct(p) u_c) / (count(p) + distinct(p))

    where p is the label of the previous position, and `count(p, c)` is how often class c
    follows p in the training labels. `count(p)` is the sum of `count(p, c)` over all c, and
    `distinct(p)` is the number of different classes that follow p. `u_c = max(count_c, 1) /
    sum_d max(count_d, 1)` is the frequency of c (Witten & Bell 1991). At the first position of
    a sequence, and after a label that nothing follows in the training labels, `q_c = u_c`.

    Features are `[batch, time, dim]` and labels `[batch, time]`; if the previous position has
    several labels, p is the first of them. Each position has its own `num_sampled` draws with
    replacement, which take O(num_sampled log num_pairs) time. The expected counts are exactly
    `num_sampled q_c`. A draw may be a label of the position itself (an accidental hit).

    The counts come from `adapt`, before or after the layer is built. They are stored in weights
    of the layer: 16 bytes per pair and 8 per class.

    Args:
        num_sampled: Number of draws for each position.
        num_pairs: Number of different pairs to store. If there are more, the least frequent
            ones are dropped. None stores all pairs that `adapt` counts. In this case, call
            `adapt` before the layer is built.
        seed: Int that determines the random draws; None for a random seed.

    Raises:
        ValueError: In training, if the features are not sequences, or if there are no counts.
            When the layer is built: if the number of pairs is unknown.

    References:
        Witten and Bell 1991, "The zero-frequency problem", method C. Blanc & Rendle 2018 use a
        bigram sampler in their comparison, section 4.1.2.

    Example:
        sampler = BigramSampler(64)
        sampler.adapt(train)  # a dataset of (x, y), y of shape [batch, time]
        keras.Sequential([encoder, LargeOutput(100_000, sampler=sampler)])
    """

    searches = uses_previous = True

    def __init__(
        self, num_sampled: int = 1024, num_pairs: int | None = None, seed: int | None = None
    ) -> None:
        super().__init__(num_sampled, seed=seed)
        self.num_pairs = whole_number("num_pairs", num_pairs, or_none=True)
        self._pairs: LabelPairs | None = None
        self._tables = CountTables()

    def adapt(self, data: TensorLike | tf.data.Dataset, steps: int | None = None) -> None:
        """Counts the training labels, in sequences; replaces earlier counts.

        Args:
            data: Integer labels `[..., time]`, padded with -1 or ragged, or a `tf.data.Dataset`
                of them or of tuples `(x, y, ...)`. Labels `[n]` are one sequence. Pass one
                label per position; if there are several, pass `y[..., 0]`.
            steps: Number of elements to take from a dataset; needed if it is infinite.

        Raises:
            ValueError: If `data` contains no pair of consecutive labels, if some labels are not
                class ids, or if the dataset is infinite and `steps` is None.
        """
        pairs = count_pairs(data, steps)
        if self._tables.are_built:
            self._tables.assign(self._make_tables(pairs))
        else:
            self._pairs = pairs

    def build(self, layer: ClassLayer) -> None:
        if self._pairs is None and self.num_pairs is None:
            raise ValueError(
                "BigramSampler must know how many pairs of classes to store. Call `adapt` on "
                "the training labels before the layer is built, or pass `num_pairs`."
            )
        if self._pairs is not None:
            self._check_size(self._pairs, layer.num_classes)
        super().build(layer)
        values = None
        if self._pairs is not None:
            self.num_pairs = self.num_pairs or len(self._pairs.times)
            values = self._make_tables(self._pairs)
        room = self.num_pairs or 1
        specs = [
            ("pair_keys", (room,), "int64"),
            ("pair_cumulative", (room + 1,), "int64"),
            ("cumulative", (self.num_classes + 1,), "int64"),
        ]
        self._tables.build(self, layer, specs, values)

    def release(self) -> None:
        super().release()
        self._tables = CountTables()

    def take_classes(self, before: Any, change: ClassChange) -> None:
        keys, pair_sums, sums = before._tables.values()
        if sums[-1] == 0:
            return  # nothing was counted
        keys = keys[keys < _NO_PAIR]
        ids, times = change.new_ids(), np.diff(pair_sums)[: len(keys)]
        first, second = ids[keys // before.num_classes], ids[keys % before.num_classes]
        order = np.lexsort((second, first))
        order = order[(first[order] >= 0) & (second[order] >= 0)]
        counts = change.moved(np.diff(sums), 1)
        pairs = LabelPairs(first[order], second[order], times[order], counts)
        self._tables.assign(self._make_tables(pairs))

    def draw_after(
        self, previous: tf.Tensor, labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues:
        tables = self._tables.read(type(self).__name__)
        self._pairs = None  # the tables hold them
        keys, pair_sums, sums = tables
        before = self._before(previous, tables)
        shape = [2, tf.shape(labels)[0], self.num_sampled]
        seed = layer.next_seed()
        choice, place = tf.unstack(tf.random.stateless_uniform(shape, seed, dtype=tf.float64))
        of_pairs = before.start + _scaled(place, before.total)
        pair = tf.minimum(_search(pair_sums, of_pairs, "right"), keys.shape[0]) - 1
        followers = tf.gather(keys, pair) - before.first_key
        alone = _search(sums, _scaled(place, sums[-1]), "right") - 1
        is_pair = choice < before.scale * tf.cast(before.total, tf.float64)
        ids = tf.where(is_pair, followers, alone)
        counts = self._counts(ids, before, tables)
        true_counts = self._counts(tf.maximum(labels, 0), before, tables)
        return SampledValues(ids, tf.where(labels >= 0, true_counts, 1), counts)

    def get_config(self) -> Config:
        num_pairs = self.num_pairs
        if num_pairs is None and self._pairs is not None:
            num_pairs = len(self._pairs.times)
        return {**super().get_config(), "num_pairs": num_pairs}

    def _before(self, previous: tf.Tensor, tables: list[tf.Tensor]) -> _Before:
        keys, sums, _ = tables
        first_key = (tf.maximum(previous, 0) * self.num_classes)[:, tf.newaxis]
        first = _search(keys, first_key, "left")
        end = _search(keys, first_key + self.num_classes, "left")
        end = tf.where(previous[:, tf.newaxis] >= 0, end, first)
        start = tf.gather(sums, first)
        total = tf.gather(sums, end) - start
        distinct = tf.cast(end - first, tf.float64)
        scale = tf.math.divide_no_nan(
            tf.ones([], tf.float64), tf.cast(total, tf.float64) + distinct
        )
        backoff = tf.where(total > 0, distinct * scale, 1)
        return _Before(first_key, start, total, scale, backoff)

    def _counts(self, ids: tf.Tensor, before: _Before, tables: list[tf.Tensor]) -> tf.Tensor:
        """Returns float32, the expected counts of `ids`, int64 `[B, n]`."""
        keys, pair_sums, sums = tables
        wanted = before.first_key + ids
        pair = tf.minimum(_search(keys, wanted, "left"), keys.shape[0] - 1)
        is_seen = (tf.gather(keys, pair) == wanted) & (before.total > 0)
        times = tf.gather(pair_sums, pair + 1) - tf.gather(pair_sums, pair)
        times = tf.cast(tf.where(is_seen, times, 0), tf.float64)
        alone = tf.gather(sums, ids + 1) - tf.gather(sums, ids)
        alone = tf.cast(alone, tf.float64) / tf.cast(sums[-1], tf.float64)
        q = times * before.scale + before.backoff * alone
        return tf.cast(self.num_sampled * q, tf.float32)

    def _make_tables(self, pairs: LabelPairs) -> list[np.ndarray]:
        self._check_size(pairs, self.num_classes)
        num_pairs = self.num_pairs or 1
        pairs = pairs.most_frequent(num_pairs)
        keys = np.full(num_pairs, _NO_PAIR)
        keys[: len(pairs.first)] = pairs.first * self.num_classes + pairs.second
        times = np.pad(pairs.times, (1, num_pairs - len(pairs.times)))
        counts = np.ones(self.num_classes, np.int64)
        counts[: len(pairs.counts)] = np.maximum(pairs.counts, 1)
        return [keys, np.cumsum(times), np.cumsum(np.pad(counts, (1, 0)))]

    def _check_size(self, pairs: LabelPairs, num_classes: int) -> None:
        if len(pairs.counts) > num_classes:
            raise ValueError(
                f"BigramSampler was given labels up to {len(pairs.counts) - 1}, but the layer "
                f"has num_classes={num_classes}. Pass labels below num_classes to `adapt`."
            )


def _search(rising: tf.Tensor, values: tf.Tensor, side: str) -> tf.Tensor:
    """Returns `tf.searchsorted` for values of any shape, int64."""
    flat = tf.searchsorted(rising, tf.reshape(values, [-1]), side, tf.int64)
    return tf.reshape(flat, tf.shape(values))


def _scaled(uniform: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
    """Scales numbers in [0, 1) to int64 in [0, total); 0 if the total is 0."""
    numbers = tf.cast(uniform * tf.cast(total, tf.float64), tf.int64)
    return tf.clip_by_value(numbers, 0, tf.maximum(total - 1, 0))
