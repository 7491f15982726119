"""Draws from any distribution, with tables that are bit-identical to those of the op library.

NumPy computes the tables once, on the host. See `core/sampling/alias_table.h`,
`cumulative_table.h` and `integer_masses.h` for the methods.
"""

import math

import numpy as np
import tensorflow as tf

from tf_largeout.ops.stock import errors, philox, sampling

_ALIAS_TOTAL = 2**60  # the size of a slot, and the sum of the masses
_MOST_CLASSES = 2**31

_LOW_HALF = 2**32 - 1
_HOW_TO_FILL = "a UnigramSampler gets one from `counts`, from `adapt`, or from saved weights"


def largeout_alias_table(weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the slots and the probabilities for `largeout_alias_sample`."""
    weights = _weights(weights)
    dtypes = [tf.int64, tf.float32]
    slots, probability = tf.numpy_function(_alias_table, [weights], dtypes, stateful=False)
    size = weights.shape[0]
    return tf.ensure_shape(slots, [size, 2]), tf.ensure_shape(probability, [size])


def largeout_pivotal_table(
    weights: tf.Tensor, num_sampled: int, num_buckets: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the cumulative masses and the index for `largeout_pivotal_sample`."""
    sampling.check_count("num_sampled", num_sampled)
    sampling.check_count("num_buckets", num_buckets)
    weights = _weights(weights)

    def table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _pivotal_table(weights, num_sampled, num_buckets)

    dtypes = [tf.int64, tf.int64]
    cumulative, index = tf.numpy_function(table, [weights], dtypes, stateful=False)
    size = weights.shape[0]
    cumulative = tf.ensure_shape(cumulative, [None if size is None else size + 1])
    return cumulative, tf.ensure_shape(index, [num_buckets + 1])


def largeout_alias_sample(
    true_classes: tf.Tensor,
    seed: tf.Tensor,
    slots: tf.Tensor,
    probability: tf.Tensor,
    num_sampled: int,
) -> sampling.Sample:
    """Draws with replacement."""
    sampling.check_count("num_sampled", num_sampled)
    slots = errors.tensor(slots, tf.int64, "slots")
    probability = errors.tensor(probability, tf.float32, "probability")
    sizes = tf.TensorShape([probability.shape[0] if probability.shape.rank == 1 else 0, 2])
    if 0 in sizes or not slots.shape.is_compatible_with(sizes):
        errors.fail(
            "slots and probability must have shapes [num_classes, 2] and [num_classes], "
            f"received {errors.sizes(slots)} and {errors.sizes(probability)}"
        )
    errors.precondition(probability[0] > 0, f"the alias table is empty: {_HOW_TO_FILL}")
    num_classes = _size(probability)
    first, second = philox.bits_of_draws(sampling.seed_tensor(seed), num_sampled)
    own = philox.scale_bits(first, num_classes)
    threshold, alias = tf.unstack(tf.gather(slots, own), axis=1)
    drawn = tf.where(philox.scale_bits(second, _ALIAS_TOTAL) < threshold, own, alias)

    def counts_of(ids: tf.Tensor) -> tf.Tensor:
        return num_sampled * tf.gather(probability, ids)

    true_counts = sampling.counts_of_labels(true_classes, num_classes, counts_of)
    # Table entries are ids, which may come from a damaged file.
    message = f"the alias table is damaged: it contains class {{number}} of {num_classes}"
    exists = (drawn >= 0) & (drawn < num_classes)
    drawn = errors.all_true(exists, drawn, message, drawn, tf.errors.DataLossError)
    inside = tf.clip_by_value(drawn, 0, num_classes - 1)
    return inside, true_counts, tf.where(exists, counts_of(inside), float("nan"))


def largeout_pivotal_sample(
    true_classes: tf.Tensor,
    seed: tf.Tensor,
    cumulative: tf.Tensor,
    index: tf.Tensor,
    num_sampled: int,
) -> sampling.Sample:
    """Draws distinct classes.

    A binary search over all classes finds a class, in a static number of steps. `index` is not
    used.
    """
    sampling.check_count("num_sampled", num_sampled)
    cumulative = errors.tensor(cumulative, tf.int64, "cumulative")
    index = errors.tensor(index, tf.int64, "index")
    if not all(x.shape.rank in (1, None) and x.shape != [1] for x in (cumulative, index)):
        errors.fail(
            "cumulative and index must be vectors of at least 2 numbers, received "
            f"{errors.sizes(cumulative)} and {errors.sizes(index)}"
        )
    distribution = _Table(cumulative, num_sampled)
    message = f"the table of cumulative counts is empty: {_HOW_TO_FILL}"
    errors.precondition(cumulative[-1] != 0, message)
    errors.precondition(
        distribution.fits,
        "the table of cumulative counts was not made for "
        f"num_sampled={num_sampled}: make a new one from the counts",
    )
    return sampling.sample(distribution, true_classes, seed, num_sampled, unique=True)


class _Table:
    """A distribution given by cumulative lengths, int64 `[num_classes + 1]`."""

    def __init__(self, cumulative: tf.Tensor, num_strata: int):
        self._cumulative = cumulative
        self.num_classes = _size(cumulative) - 1
        self.stratum = sampling.stratum_length(num_strata)
        self.fits = cumulative[-1] == num_strata * self.stratum
        most_steps = (cumulative.shape[0] or _MOST_CLASSES).bit_length()
        self._halvings = [1 << step for step in reversed(range(most_steps))]

    def cumulative(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(self._cumulative, ids)

    def find(self, places: tf.Tensor) -> tf.Tensor:
        last = self.num_classes - 1
        ids = tf.zeros_like(places)
        for step in self._halvings:
            later = tf.minimum(ids + step, last)
            ids = tf.where(self.cumulative(later) <= places, later, ids)
        return ids

    def lengths(self, ids: tf.Tensor) -> tf.Tensor:
        length = self.cumulative(ids + 1) - self.cumulative(ids)
        unit = tf.where(self.fits, tf.constant(self.stratum, tf.float64), math.nan)
        return tf.cast(length, tf.float64) / unit


def _size(vector: tf.Tensor) -> int | tf.Tensor:
    return tf.size(vector, tf.int64) if vector.shape[0] is None else vector.shape[0]


def _weights(weights: tf.Tensor) -> tf.Tensor:
    weights = errors.tensor(weights, tf.float64, "weights")
    if weights.shape.rank not in (1, None):
        errors.fail(f"weights must be a vector, received shape {errors.sizes(weights)}")
    return weights


def _check_weights(weights: np.ndarray, num_sampled: int) -> None:
    if not num_sampled <= weights.size <= _MOST_CLASSES:
        errors.fail(
            f"weights must be a vector of {num_sampled} to {_MOST_CLASSES} numbers, received "
            f"shape [{weights.size}]"
        )
    is_bad = ~(weights > 0)
    if is_bad.any():
        bad = int(np.argmax(is_bad))
        errors.fail(f"weights must be positive, received {weights[bad]} for class {bad}")
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not np.isfinite(total):
        errors.fail(
            f"the sum of the weights must be finite, received {total}: scale the weights down"
        )


def _pivotal_table(
    weights: np.ndarray, num_sampled: int, num_buckets: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the cumulative masses, and for each bucket the first class that ends in it."""
    _check_weights(weights, num_sampled)
    ends = np.cumsum(_integer_masses(weights, num_sampled))
    buckets = (ends * (num_buckets / float(ends[-1]))).astype(np.int64)
    np.clip(buckets, 0, num_buckets - 1, out=buckets)
    index = np.searchsorted(buckets, np.arange(num_buckets + 1))
    index[num_buckets] = len(weights) - 1
    return np.concatenate([[0], ends]), index


def _integer_masses(weights: np.ndarray, num_strata: int) -> np.ndarray:
    """Returns the parts of a stratum `min(1, tau weights)` as integers with the exact sum."""
    stratum = sampling.stratum_length(num_strata)
    scale, certain = _find_scale(weights, num_strata)
    masses = (np.minimum(1.0, weights * scale) * stratum).astype(np.int64)
    masses = np.where(weights >= certain, stratum, np.maximum(masses, 1))
    missing = num_strata * stratum - int(masses.sum())
    while missing:
        # Each class takes up to `step`, in the order of ids, until nothing is missing.
        step = max(1, abs(missing) // len(masses))
        sign = 1 if missing > 0 else -1
        most = np.minimum(stratum - masses if missing > 0 else masses - 1, step)
        rest = abs(missing) - (np.cumsum(most) - most)
        changes = sign * np.clip(rest, 0, most)
        masses += changes
        missing -= int(changes.sum())
    return masses


def _find_scale(weights: np.ndarray, num_strata: int) -> tuple[float, float]:
    """Returns the stratum per weight, and the least weight that is drawn with certainty.

    Sums are in the order of the op library, because they decide the last bits of the masses.
    """
    first = len(weights) - num_strata
    largest = np.sort(np.partition(weights, first)[first:])[::-1]
    last = largest[-1]
    ties = int(np.sum(weights == last)) - int(np.sum(largest == last))
    smaller = weights[weights < last]
    tail = np.cumsum(smaller)[-1] if len(smaller) else 0.0
    rest = np.cumsum([tail + ties * last, *largest[::-1]])[::-1]
    is_certain = (num_strata - np.arange(num_strata)) * largest >= rest[:-1]
    count = num_strata if is_certain.all() else int(np.argmin(is_certain))
    scale = (num_strata - count) / rest[count] if count < num_strata else 0.0
    return scale, largest[count - 1] if count else 2 * largest[0]


def _alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the slots and the probabilities.

    The room that light classes leave in their slots is laid out on a line, in the order of ids.
    The excess of the heavy classes is laid out on the same line. The room of a light slot goes
    to the first heavy class that ends at the start of this room or later. Room that starts
    after the end of a heavy class goes to the next heavy class. Numbers have up to 91 bits: a
    high part and 32 low bits.
    """
    _check_weights(weights, 1)
    masses = _integer_masses(weights, 1)
    probability = (masses / _ALIAS_TOTAL).astype(np.float32)
    size = len(masses)
    high, low = (masses >> 32) * size, (masses & _LOW_HALF) * size
    high, low = high + (low >> 32), low & _LOW_HALF
    full = _ALIAS_TOTAL >> 32
    light = np.flatnonzero(high < full)
    heavy = np.flatnonzero((high > full) | ((high == full) & (low > 0)))
    slots = np.stack([np.full(size, _ALIAS_TOTAL), np.arange(size)], axis=1)
    if not len(heavy):
        return slots, probability
    slots[light, 0] = (high[light] << 32) + low[light]
    room = _ALIAS_TOTAL - slots[light, 0]
    starts = _sums(np.append(0, room >> 32), np.append(0, room & _LOW_HALF))
    ends = _sums(high[heavy] - full, low[heavy])
    # The last start is the end of the line, where the last heavy class ends, too.
    is_end = np.arange(len(light) + 1 + len(heavy)) > len(light)
    order = np.lexsort([is_end, *np.concatenate([starts, ends], axis=1)])
    num_ends = np.cumsum(is_end[order])
    owner = num_ends[~is_end[order]][:-1]
    slots[light, 1] = heavy[owner]
    after = (np.arange(len(order)) + 1 - num_ends)[is_end[order]][:-1]
    high_gap, low_gap = ends[::-1, :-1] - starts[::-1, after]
    slots[heavy[:-1], 0] = _ALIAS_TOTAL + (high_gap << 32) + low_gap
    slots[heavy[:-1], 1] = heavy[1:]
    return slots, probability


def _sums(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Returns cumulative sums, as the rows low and high."""
    high, low = np.cumsum(high), np.cumsum(low)
    return np.stack([low & _LOW_HALF, high + (low >> 32)])
