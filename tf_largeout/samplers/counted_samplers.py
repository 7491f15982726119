"""Samplers that draw by counts of the labels: their base class, unigrams and bigrams."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import real_number, whole_number
from tf_largeout.class_counts import check_counts, distorted
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.ops.random_numbers import uniform_floats
from tf_largeout.ops.table_sampling_ops import (
    alias_sample,
    alias_table,
    own_alias_draws,
    pivotal_sample,
    pivotal_table,
)
from tf_largeout.sampled_values import SampledValues
from tf_largeout.sampler_arguments import check_num_counts, no_counts
from tf_largeout.samplers.label_counts import LabelPairs, count_labels, count_pairs
from tf_largeout.samplers.sampler import ClassLayer, Sampler, named
from tf_largeout.samplers.static_samplers import StaticSampler
from tf_largeout.types import Config, Initializer, TensorLike
from tf_largeout.variables.initializers import constant_initializer, zeros_initializer
from tf_largeout.variables.replicas import local_variable

Spec = tuple[str, tuple[int, ...], str]  # name, shape and dtype


class CountTables:
    """Weights of a sampler with counts of classes; zeros until they are filled or loaded."""

    def __init__(self) -> None:
        self._tables: list[keras.Variable] = []
        self._are_filled = False

    def build(
        self,
        sampler: Sampler,
        layer: ClassLayer,
        specs: Sequence[Spec],
        values: Sequence[np.ndarray] | None,
    ) -> None:
        """Creates the weights of `sampler` in `layer`; None are zeros."""
        initializers: list[Initializer] = [zeros_initializer] * len(specs)
        if values is not None:
            initializers = [constant_initializer(value) for value in values]
        self._tables = [
            sampler.add_weight(layer, name, shape, dtype, initializer)
            for (name, shape, dtype), initializer in zip(specs, initializers, strict=True)
        ]
        self._are_filled = values is not None

    def assign(self, values: Sequence[TensorLike]) -> None:
        """Sets the weights."""
        for table, value in zip(self._tables, values, strict=True):
            table.assign(value)
        self._are_filled = True

    def values(self) -> list[np.ndarray]:
        """Returns the weights, zeros if nothing was counted. Call it only outside a step."""
        return [local_variable(table).numpy() for table in self._tables]

    def read(self, asked_by: str) -> list[tf.Tensor]:
        """Returns the values. Raises a ValueError for sampler `asked_by` if there are none."""
        self._are_filled = self._are_filled or self._hold_something()
        if not self._are_filled:
            raise no_counts(asked_by)
        return [tf.convert_to_tensor(table) for table in self._tables]

    def _hold_something(self) -> bool:
        """Returns whether the weights were loaded. True while variables do not exist yet."""
        strategy = tf.distribute.get_strategy()
        with tf.init_scope():
            try:
                last = [
                    strategy.experimental_local_results(table.value)[0][-1]
                    for table in self._tables
                ]
            except tf.errors.FailedPreconditionError:
                return True  # the draw checks this
            return any(bool(tf.reduce_any(numbers > 0)) for numbers in last)


_NO_COUNTS = np.zeros(0)


class CountedSampler(StaticSampler):
    """Base of the samplers whose distribution is computed from one count per class.

    A subclass implements `table_specs`, `make_tables` and `draw_shared`, and `draw_own` if it
    supports `shared=False`. Both first call `tables()`. See `UnigramSampler` for the arguments.
    """

    def __init__(
        self,
        num_sampled: int = 1024,
        counts: TensorLike | None = None,
        unique: bool | None = None,
        seed: int | None = None,
        shared: bool = True,
    ) -> None:
        super().__init__(num_sampled, unique, seed, shared)
        self._counts = _NO_COUNTS if counts is None else check_counts(counts)
        self._counts_are_complete = counts is not None
        self._tables = CountTables()
        self._count_weight: keras.Variable = None  # until it is built

    def table_specs(self) -> list[Spec]:
        """Returns the name, shape and dtype of each table. Zeros mean no counts."""
        raise NotImplementedError(f"{type(self).__name__} must define `table_specs`.")

    def make_tables(self, counts: np.ndarray) -> list[tf.Tensor]:
        """Returns tables for float64 counts `[num_classes]`, none negative and not all 0."""
        raise NotImplementedError(f"{type(self).__name__} must define `make_tables`.")

    def tables(self) -> list[tf.Tensor]:
        """Returns the tables in the order of `table_specs`; raises a ValueError if empty."""
        tables = self._tables.read(type(self).__name__)
        self._counts = _NO_COUNTS  # the tables hold them
        return tables

    def adapt(self, data: TensorLike | tf.data.Dataset, steps: int | None = None) -> None:
        """Counts the training labels; replaces earlier counts.

        Args:
            data: Integer labels of any shape, padded with -1 or ragged, or a `tf.data.Dataset`
                of them or of tuples `(x, y, ...)`.
            steps: Number of elements to take from a dataset; needed if it is infinite.

        Raises:
            ValueError: If `data` contains no labels, if some labels are not class ids, or if
                the dataset is infinite and `steps` is None.
        """
        counts = count_labels(data, steps)
        if self.num_classes:  # it is built
            check_num_counts(self, counts.size, False, self.num_classes)
            self._fill_tables(counts)
        else:
            self._counts, self._counts_are_complete = counts, False

    def build(self, layer: ClassLayer) -> None:
        size = self._counts.size
        check_num_counts(self, size, self._counts_are_complete, layer.num_classes)
        super().build(layer)
        self._tables = CountTables()  # its own, even if the sampler is a copy of another
        counts, values = self._padded(self._counts), None
        if self._counts.size:
            with tf.init_scope():
                values = [table.numpy() for table in self.make_tables(counts)]
        self._tables.build(self, layer, self.table_specs(), values)
        # The tables do not contain them: very frequent classes have the same entries.
        self._count_weight = self.add_weight(
            layer, "counts", counts.shape, "float64", constant_initializer(counts)
        )

    def release(self) -> None:
        super().release()
        self._tables = CountTables()
        self._count_weight = None

    def take_classes(self, before: Any, change: ClassChange) -> None:
        counts = local_variable(before._count_weight).numpy()
        if not counts.any():
            return  # nothing was counted
        counts = change.moved(counts, 0)
        self._fill_tables(counts if counts.any() else np.ones(self.num_classes))

    def _fill_tables(self, counts: np.ndarray) -> None:
        counts = self._padded(counts)
        self._tables.assign(self.make_tables(counts))
        self._count_weight.assign(counts)
        self._counts = _NO_COUNTS

    def _padded(self, counts: np.ndarray) -> np.ndarray:
        return np.pad(counts, (0, self.num_classes - counts.size))


@named("unigram")
@keras.saving.register_keras_serializable(package="tf_largeout")
class UnigramSampler(CountedSampler):
    """Draws classes in proportion to their frequency.

        q_c = max(count_c, floor)^distortion / sum of the same over all classes

    where floor is 1, or the smallest positive count if that is below 1. So a class without a
    count is treated as if it had been seen once. Otherwise it would never be drawn, its score
    would never be reduced, and its correction log q would be infinite.

    The counts come from `counts` or from `adapt(labels)`, before or after the layer is built.
    Training without them is an error before the first step. They are saved with the weights of
    the layer, not in the config, so a copy by `keras.models.clone_model` has them after
    `set_weights`. The state takes 28 bytes per class with replacement (an alias table), and 18
    bytes without (cumulative inclusion probabilities). A draw takes O(1) time on average. The
    expected counts are exact; see `StaticSampler`, also for the other arguments.

    Args:
        distortion: Exponent of the counts: 1, the default as in `tf.nn`, draws by frequency,
            and 0 draws uniformly. word2vec uses 0.75.
        counts: Optional counts, or any numbers in proportion to them, one per class.

    Example:
        sampler = UnigramSampler(1024, distortion=0.75)
        sampler.adapt(train)  # a dataset of (x, y)
        keras.Sequential([encoder, LargeOutput(100_000, sampler=sampler)])
    """

    def __init__(
        self,
        num_sampled: int = 1024,
        counts: TensorLike | None = None,
        distortion: float = 1.0,
        unique: bool | None = None,
        seed: int | None = None,
        shared: bool = True,
    ) -> None:
        super().__init__(num_sampled, counts, unique=unique, seed=seed, shared=shared)
        self.distortion = real_number("distortion", distortion, least=0)

    def draw_shared(
        self, labels: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        first, second = self.tables()
        sample = pivotal_sample if self.unique else alias_sample
        return sample(labels, seed, first, second, self.num_sampled)

    def draw_own(self, batch: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        slots, _ = self.tables()
        return own_alias_draws(batch, seed, slots, self.num_sampled)

    def get_config(self) -> Config:
        return {**super().get_config(), "distortion": self.distortion}

    def table_specs(self) -> list[Spec]:
        if self.unique:
            return [
                ("cumulative", (self.num_classes + 1,), "int64"),
                ("index", (self._num_buckets + 1,), "int64"),
            ]
        return [
            ("alias_slots", (self.num_classes, 2), "int64"),
            ("probability", (self.num_classes,), "float32"),
        ]

    def make_tables(self, counts: np.ndarray) -> list[tf.Tensor]:
        weights = distorted(counts, self.distortion)
        with tf.device("CPU:0"):
            if self.unique:
                return [*pivotal_table(weights, self.num_sampled, self._num_buckets)]
            return [*alias_table(weights)]

    @property
    def _num_buckets(self) -> int:
        return self.num_classes // 4 + 1


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

        Arguments and errors are those of `UnigramSampler.adapt`. Labels are `[..., time]`;
        `[n]` are one sequence. Pass one label per position; if there are several, pass `y[...,
        0]`. Without two consecutive labels, a ValueError is raised.
        """
        pairs = count_pairs(data, steps)
        if self.num_classes:  # it is built
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
        choice, place = tf.unstack(uniform_floats(shape, seed))
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
