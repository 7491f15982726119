"""Draws of classes from the uniform and the log-uniform distribution, and from any other one.

The method and its terms are those of `core/sampling/sampling.h`: classes are on a line of
integers, class c at `[cumulative(c), cumulative(c + 1))`. With the same seed, draws are those
of the op library. Log-uniform draws may differ in rare cases, because logarithms of processors
differ in the last bit.
"""

import math
from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from tf_largeout.ops.stock import errors, philox
from tf_largeout.sampling_tables import num_certain, stratum_length

_MOST_CLASSES = 2**31

Sample = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


class Distribution(Protocol):
    """The lengths of the classes on the line. Ids and places are int64.

    Attributes:
        num_classes: The number of classes.
        stratum: The length of a stratum.
    """

    num_classes: Any
    stratum: int

    def cumulative(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns where classes in `[0, num_classes]` start."""

    def find(self, places: tf.Tensor) -> tf.Tensor:
        """Returns the classes that contain the places."""

    def lengths(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the lengths of classes in strata, float64."""


def largeout_uniform_sample(
    true_classes: tf.Tensor, seed: tf.Tensor, num_classes: int, num_sampled: int, unique: bool
) -> Sample:
    """Draws classes with equal probabilities."""
    _check_counts(num_classes, num_sampled, unique)
    distribution = _Uniform(num_classes, num_sampled if unique else 1)
    return sample(distribution, true_classes, seed, num_sampled, unique)


def largeout_log_uniform_sample(
    true_classes: tf.Tensor, seed: tf.Tensor, num_classes: int, num_sampled: int, unique: bool
) -> Sample:
    """Draws class c with a probability in proportion to `log((c + 2) / (c + 1))`."""
    _check_counts(num_classes, num_sampled, unique)
    distribution = _LogUniform(num_classes, num_sampled if unique else 1)
    return sample(distribution, true_classes, seed, num_sampled, unique)


def sample(
    distribution: Distribution,
    true_classes: tf.Tensor,
    seed: tf.Tensor,
    num_sampled: int,
    unique: bool,
) -> Sample:
    """Draws classes, and returns them with the expected counts.

    The line of the distribution is one stratum, or with `unique` `num_sampled` strata.
    """
    seed = seed_tensor(seed)
    if unique:
        drawn = _draw_without_replacement(distribution, num_sampled, seed)
    else:
        bits, _ = philox.bits_of_draws(seed, num_sampled)
        drawn = distribution.find(philox.scale_bits(bits, distribution.stratum))
    draws = 1 if unique else num_sampled

    def counts_of(ids: tf.Tensor) -> tf.Tensor:
        return draws * tf.cast(distribution.lengths(ids), tf.float32)

    true_counts = counts_of_labels(true_classes, distribution.num_classes, counts_of)
    return drawn, true_counts, counts_of(drawn)


def seed_tensor(seed: Any) -> tf.Tensor:
    """Returns the seed as int64 `[2]`."""
    seed = errors.tensor(seed, tf.int64, "seed")
    if not seed.shape.is_compatible_with([2]):
        errors.fail(f"seed must be [2], got {errors.sizes(seed)}")
    return tf.ensure_shape(seed, [2])


def counts_of_labels(
    true_classes: Any, num_classes: Any, counts_of: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """Returns the expected counts of labels: 1 for -1, NaN for other ids out of range."""
    labels = errors.tensor(true_classes, tf.int64, "labels")
    num_classes = tf.cast(num_classes, tf.int64)
    labels = errors.class_ids(labels, num_classes, "labels")
    counts = counts_of(tf.clip_by_value(labels, 0, num_classes - 1))
    is_class = (labels >= 0) & (labels < num_classes)
    return tf.where(is_class, counts, tf.where(labels == -1, 1.0, float("nan")))


def check_count(name: str, count: int) -> None:
    """Raises an InvalidArgumentError unless a count is in `[1, 2^31)`."""
    if not 1 <= count < 2**31:
        errors.fail(f"{name} must be at least 1 and less than 2^31, got {count}")


def _check_counts(num_classes: int, num_sampled: int, unique: bool) -> None:
    check_count("num_sampled", num_sampled)
    if not 1 <= num_classes <= _MOST_CLASSES:
        errors.fail(f"num_classes must be at least 1 and at most 2^31, received {num_classes}")
    if unique and num_sampled > num_classes:
        errors.fail(
            "num_sampled must be at most num_classes if unique is true, received "
            f"num_sampled={num_sampled} and num_classes={num_classes}"
        )


class _Uniform:
    """A class has the length `num_strata`, and a stratum the length `num_classes`."""

    def __init__(self, num_classes: int, num_strata: int):
        self.num_classes = self.stratum = num_classes
        self._num_strata = num_strata

    def cumulative(self, ids: tf.Tensor) -> tf.Tensor:
        return ids * self._num_strata

    def find(self, places: tf.Tensor) -> tf.Tensor:
        return places // self._num_strata

    def lengths(self, ids: tf.Tensor) -> tf.Tensor:
        share = tf.constant(self._num_strata / self.num_classes, tf.float64)
        return tf.broadcast_to(share, tf.shape(ids))


class _LogUniform:
    """Class c has the length `pi_c = min(1, tau log((c + 2) / (c + 1)))` of a stratum.

    tau is such that the lengths sum to `num_strata`. The first `num_certain` classes have the
    length 1.
    """

    def __init__(self, num_classes: int, num_strata: int):
        self.num_classes = num_classes
        self.stratum = stratum_length(num_strata)
        self._total = num_strata * self.stratum
        self._num_certain = num_certain(num_classes, num_strata)
        self._certain = self._num_certain * self.stratum
        log = math.log((num_classes + 1) / (self._num_certain + 1))
        self._scale = (self._total - self._certain) / log if log > 0 else 1.0

    def cumulative(self, ids: tf.Tensor) -> tf.Tensor:
        ratio = tf.cast(ids + 1, tf.float64) / (self._num_certain + 1)
        rest = tf.cast(tf.math.log(tf.maximum(ratio, 1)) * self._scale, tf.int64)
        starts = tf.where(ids == self.num_classes, self._total, self._certain + rest)
        return tf.where(ids <= self._num_certain, ids * self.stratum, starts)

    def find(self, places: tf.Tensor) -> tf.Tensor:
        rest = tf.cast(places - self._certain, tf.float64)
        guess = (self._num_certain + 1) * tf.exp(rest / self._scale) - 1
        last = self.num_classes - 1
        first = min(self._num_certain, last)
        ids = tf.clip_by_value(tf.cast(guess, tf.int64), first, last)
        # Rounding moves the guess by one class at most.
        ids -= tf.cast((ids > first) & (self.cumulative(ids) > places), tf.int64)
        ids += tf.cast((ids < last) & (self.cumulative(ids + 1) <= places), tf.int64)
        return tf.where(places < self._certain, places // self.stratum, ids)

    def lengths(self, ids: tf.Tensor) -> tf.Tensor:
        own = tf.math.log1p(1 / tf.cast(ids + 1, tf.float64))
        own *= self._scale / self.stratum
        return tf.where(ids < self._num_certain, tf.ones_like(own), own)


def _draw_without_replacement(
    distribution: Distribution, num_sampled: int, seed: tf.Tensor
) -> tf.Tensor:
    """Draws by ordered pivotal sampling, which `core/sampling/sampling.h` explains.

    All strata are computed at once. Only a fight depends on earlier fights.
    """
    stratum = distribution.stratum
    length = num_sampled * stratum

    def start_of(ids: tf.Tensor) -> tf.Tensor:
        return tf.clip_by_value(distribution.cumulative(ids), 0, length)

    first_bits = philox.bits_of_last_draw(seed)
    start = distribution.find(philox.scale_bits(first_bits, length))
    rotation = start_of(start)

    def on_ring(places: tf.Tensor) -> tf.Tensor:
        rotated = places + rotation
        return tf.where(rotated < length, rotated, rotated - length)

    ends = tf.range(num_sampled + 1, dtype=tf.int64) * stratum
    places = on_ring(ends)
    straddlers = distribution.find(places)
    before = tf.clip_by_value(places - start_of(straddlers), 0, stratum)
    after = tf.clip_by_value(start_of(straddlers + 1) - places, 0, stratum)
    straddlers, jumper_lengths = straddlers[1:], after[:-1]
    before, after = before[1:], after[1:]

    bits, fight_bits = philox.bits_of_draws(seed, num_sampled)
    picks = philox.scale_bits(bits, stratum - before)
    inside = distribution.find(on_ring(ends[:-1] + picks))
    jumper_is_picked = picks < jumper_lengths
    straddler_wins = philox.scale_bits(fight_bits, stratum - after) < before
    next_jumpers = tf.where(straddler_wins, inside, straddlers)
    jumper_stays = straddler_wins & jumper_is_picked
    jumpers = _last_before(start, next_jumpers, ~jumper_stays)
    picked = tf.where(jumper_is_picked, jumpers, inside)
    return tf.where(straddler_wins, straddlers, picked)


def _last_before(first: tf.Tensor, values: tf.Tensor, is_set: tf.Tensor) -> tf.Tensor:
    """Returns for each place the last value before it that is set, or `first` `[1]`."""
    count = tf.size(values)
    num_before = tf.cumsum(tf.cast(is_set, tf.int32), exclusive=True)
    places = tf.where(is_set, num_before, count)  # others share a place that is not read
    set_values = tf.scatter_nd(places[:, tf.newaxis], values, [count + 1])
    return tf.gather(tf.concat([first, set_values], axis=0), num_before)
