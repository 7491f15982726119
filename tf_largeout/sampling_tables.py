"""Tables for draws from a distribution, made in NumPy, for the samplers of all backends.

They are bit-identical to those of the op library. See `core/sampling/alias_table.h`,
`cumulative_table.h` and `integer_masses.h` for the methods.
"""

import bisect
import math
from collections.abc import Callable

import numpy as np

ALIAS_TOTAL = 2**60  # the size of a slot, and the sum of the masses
_LONGEST = 2**60  # of the line of a table
_LOW_HALF = 2**32 - 1
_WIDTH = 2.0**-13  # of a block of log-uniform classes, relative to its ids
_NUM_BLOCKS = 2**12 + 1  # of uniform classes


def stratum_length(num_strata: int) -> int:
    """Returns the largest power of two of which `num_strata` sum to at most 2^60."""
    return 1 << ((_LONGEST // num_strata).bit_length() - 1)


def num_certain(num_classes: int, num_strata: int) -> int:
    """Returns how many of the first classes have the length of a stratum."""

    def is_not_certain(c: int) -> bool:
        own = math.log1p(1.0 / (c + 1))
        rest = math.log((num_classes + 1.0) / (c + 1))
        return (num_strata - c) * own < (1 - 1e-6) * rest

    return bisect.bisect_left(range(num_strata), True, key=is_not_certain)


def pivotal_table(
    weights: np.ndarray, num_sampled: int, num_buckets: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the cumulative masses, and for each bucket the first class that ends in it."""
    ends = np.cumsum(integer_masses(weights, num_sampled))
    buckets = (ends * (num_buckets / float(ends[-1]))).astype(np.int64)
    np.clip(buckets, 0, num_buckets - 1, out=buckets)
    index = np.searchsorted(buckets, np.arange(num_buckets + 1))
    index[num_buckets] = len(weights) - 1
    return np.concatenate([[0], ends]), index


def integer_masses(weights: np.ndarray, num_strata: int) -> np.ndarray:
    """Returns the parts of a stratum `min(1, tau weights)` as integers with the exact sum."""
    stratum = stratum_length(num_strata)
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


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the slots and the probabilities.

    The room that light classes leave in their slots is laid out on a line, in the order of ids.
    The excess of the heavy classes is laid out on the same line. The room of a light slot goes
    to the first heavy class that ends at the start of this room or later. Room that starts
    after the end of a heavy class goes to the next heavy class. Numbers have up to 91 bits: a
    high part and 32 low bits.
    """
    masses = integer_masses(weights, 1)
    probability = (masses / ALIAS_TOTAL).astype(np.float32)
    size = len(masses)
    high, low = (masses >> 32) * size, (masses & _LOW_HALF) * size
    high, low = high + (low >> 32), low & _LOW_HALF
    full = ALIAS_TOTAL >> 32
    light = np.flatnonzero(high < full)
    heavy = np.flatnonzero((high > full) | ((high == full) & (low > 0)))
    slots = np.stack([np.full(size, ALIAS_TOTAL), np.arange(size)], axis=1)
    if not len(heavy):
        return slots, probability
    slots[light, 0] = (high[light] << 32) + low[light]
    room = ALIAS_TOTAL - slots[light, 0]
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
    slots[heavy[:-1], 0] = ALIAS_TOTAL + (high_gap << 32) + low_gap
    slots[heavy[:-1], 1] = heavy[1:]
    return slots, probability


def _sums(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Returns cumulative sums, as the rows low and high."""
    high, low = np.cumsum(high), np.cumsum(low)
    return np.stack([low & _LOW_HALF, high + (low >> 32)])


# The arrays of a `Line` of `jax.draws`: `starts`, `first` and `lengths`.
LineTables = tuple[np.ndarray, np.ndarray, np.ndarray]


def uniform_tables(num_classes: int, num_strata: int) -> LineTables:
    """Returns the arrays for equal probabilities. Lengths differ by 1 at most."""
    first = np.linspace(0, num_classes, _NUM_BLOCKS).astype(np.int64)
    length = num_strata * stratum_length(num_strata) // num_classes
    return _line_tables(np.append(first, 1), num_strata, lambda first, _: 0 * first + length)


def log_uniform_tables(num_classes: int, num_strata: int) -> LineTables:
    """Returns the arrays for Zipf's law.

    The classes c of a block have equal lengths, the mean of their `min(1, tau log((c + 2) / (c
    + 1)))`. The first 8,192 blocks are one class each, and others are so narrow that this
    changes no length by more than a factor of 1 + 6.2e-5. There are at most 120,000 blocks.
    """
    stratum, certain = stratum_length(num_strata), num_certain(num_classes, num_strata)
    log = math.log(num_classes + 1)
    tau = (num_strata - certain) / max(log - math.log(certain + 1), 1e-300)
    ids = np.exp(_WIDTH * np.arange(log / _WIDTH)).astype(np.int64) - 1
    ids = np.concatenate([ids, [certain, certain + 1, num_classes]])

    def lengths(first: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        shares = np.minimum(tau * np.log1p(sizes / (first + 1)) / sizes, 1)
        # Rounded down, so that the sum is at most that of the line.
        uncertain = (shares * (1 - 2.0**-50) * stratum).astype(np.int64)
        return np.where(first < certain, stratum, uncertain)

    return _line_tables(np.minimum(ids, num_classes), num_strata, lengths)


def _line_tables(
    ids: np.ndarray, num_strata: int, lengths_of: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> LineTables:
    """Returns the arrays for blocks that start at `ids`, one of which is the number of classes.

    `lengths_of` returns the lengths of classes for the first class and the size of each block.
    The first block whose classes are shorter than a stratum must have one class.
    """
    first, stratum = np.unique(ids), stratum_length(num_strata)
    sizes = np.diff(first)
    lengths = lengths_of(first[:-1], sizes)
    missing = num_strata * stratum - int(lengths @ sizes)
    shorter = int((lengths == stratum).sum())
    ends = np.cumsum(sizes[shorter:])
    while missing:  # All classes in a block, and in those before it, become longer.
        count = int(np.searchsorted(ends, missing, "right"))
        times = missing // int(ends[count - 1])
        lengths[shorter : shorter + count] += times
        missing -= times * int(ends[count - 1])
    starts = np.cumsum(np.append(0, lengths * sizes))
    return words_of(starts), first.astype(np.int32), words_of(np.append(lengths, 0))


def words_of(numbers: np.ndarray) -> np.ndarray:
    """Splits int64 `[n]`, none negative, into uint32 `[n, 2]`, the high and the low bits."""
    return np.stack([numbers >> 32, numbers & _LOW_HALF], axis=1).astype(np.uint32)
