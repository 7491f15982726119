"""Draws of classes with exact expected counts, in 32-bit arithmetic.

JAX has no 64-bit numbers by default, and TPUs only emulate them. So integers of 64 bits are
pairs of 32 bits here. The methods are those of `ops/stock/sampling.py`.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf_largeout.sampling_tables import stratum_length

_LOW = 2**32 - 1


@dataclasses.dataclass(frozen=True)
class Pair:
    """Integers in [0, 2^64), as two uint32 arrays."""

    high: jax.Array
    low: jax.Array

    @classmethod
    def of(cls, number: int) -> "Pair":
        return cls(jnp.uint32(number >> 32), jnp.uint32(number & _LOW))

    @classmethod
    def at(cls, words: jax.Array, places: jax.Array) -> "Pair":
        """Returns numbers of a table of `sampling_tables.words_of`."""
        found = words[places]
        return cls(found[..., 0], found[..., 1])

    def __add__(self, other: "Pair") -> "Pair":
        low = self.low + other.low
        return Pair(self.high + other.high + (low < other.low), low)

    def __sub__(self, other: "Pair") -> "Pair":
        return Pair(self.high - other.high - (self.low < other.low), self.low - other.low)

    def __mul__(self, factor: jax.Array) -> "Pair":
        product = _product(self.low, factor)
        return Pair(self.high * factor + product.high, product.low)

    def __lt__(self, other: "Pair") -> jax.Array:
        is_equal = self.high == other.high
        return (self.high < other.high) | (is_equal & (self.low < other.low))

    def __getitem__(self, places: Any) -> "Pair":
        return Pair(self.high[places], self.low[places])

    def over(self, unit: int) -> jax.Array:
        """Divides by a power of two, float32."""
        high, low = self.high.astype(jnp.float32), self.low.astype(jnp.float32)
        return high * (2.0**32 / unit) + low * (1.0 / unit)


@dataclasses.dataclass(frozen=True)
class Line:
    """Classes as parts of a line of integers, which has `num_strata` strata.

    The part of a class is at most one stratum. A draw is the class at a random place. Classes
    of equal lengths form a block; without `first` and `lengths`, every block is one class.
    """

    num_strata: int  # 1 for draws with replacement
    starts: jax.Array  # uint32 [n + 1, 2], of the blocks; then the end of the line
    first: jax.Array | None = None  # int32 [n + 1], of each block; then the number of classes
    lengths: jax.Array | None = None  # uint32 [n + 1, 2], of each class; the last is not used

    @property
    def stratum(self) -> int:
        return stratum_length(self.num_strata)

    def shares(self, ids: jax.Array) -> jax.Array:
        """Returns the lengths of classes in strata, float32."""
        return (self.start(ids + 1) - self.start(ids)).over(self.stratum)

    def start(self, ids: jax.Array) -> Pair:
        """Returns where classes in `[0, num_classes]` start."""
        if self.first is None or self.lengths is None:
            return Pair.at(self.starts, ids)
        block = jnp.searchsorted(self.first, ids, side="right") - 1
        inside = (ids - self.first[block]).astype(jnp.uint32)
        return Pair.at(self.starts, block) + Pair.at(self.lengths, block) * inside

    def find(self, places: Pair) -> jax.Array:
        """Returns the classes that contain the places, int32."""
        block = self._block(places)
        if self.first is None or self.lengths is None:
            return block
        length = Pair.at(self.lengths, block)
        inside = places - Pair.at(self.starts, block)
        number = (inside.over(1) / length.over(1)).astype(jnp.uint32)
        # Rounding moves it by one class at most.
        number -= inside < length * number
        number += ~(inside < length * (number + 1))
        return self.first[block] + number.astype(jnp.int32)

    def _block(self, places: Pair) -> jax.Array:
        last = self.starts.shape[0] - 2
        num_halvings = last.bit_length()

        def halve(done: jax.Array, block: jax.Array) -> jax.Array:
            step = jnp.int32(1) << (num_halvings - 1 - done)
            later = block + jnp.minimum(step, last - block)
            return jnp.where(places < Pair.at(self.starts, later), block, later)

        block = jnp.zeros(places.low.shape, jnp.int32)
        return jax.lax.fori_loop(np.int32(0), np.int32(num_halvings), halve, block)

    def draw(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Draws classes with replacement, int32."""
        return self.find(_below(key, shape, Pair.of(self.num_strata * self.stratum)))

    def draw_distinct(self, key: jax.Array) -> jax.Array:
        """Draws distinct classes, int32 `[num_strata]`, each with probability `shares`.

        It is ordered pivotal sampling (Deville & Tille 1998) from a random class. In each
        stratum, a place is picked. The straddler, a class that continues in the next stratum,
        fights with the picked class. The loser is picked in the next stratum where it has
        jumped, if the place there is in the part of the straddler.
        """
        of_start, of_picks, of_fights = jax.random.split(key, 3)
        stratum, length = Pair.of(self.stratum), Pair.of(self.num_strata * self.stratum)
        start = self.find(_below(of_start, (1,), length))
        rotation = self.start(start)

        def on_ring(places: Pair) -> Pair:
            places = places + rotation
            is_inside, wrapped = places < length, places - length
            return Pair(
                jnp.where(is_inside, places.high, wrapped.high),
                jnp.where(is_inside, places.low, wrapped.low),
            )

        ends = stratum * jnp.arange(self.num_strata + 1, dtype=jnp.uint32)
        places = on_ring(ends)
        straddlers = self.find(places)
        before = places - self.start(straddlers)
        after = self.start(straddlers + 1) - places
        jumper_lengths = after[:-1]
        straddlers, before, after = straddlers[1:], before[1:], after[1:]

        shape = (self.num_strata,)
        picks = _below(of_picks, shape, stratum - before)
        inside = self.find(on_ring(ends[:-1] + picks))
        jumper_is_picked = picks < jumper_lengths
        straddler_wins = _below(of_fights, shape, stratum - after) < before
        next_jumpers = jnp.where(straddler_wins, inside, straddlers)
        jumpers = _last_before(start, next_jumpers, straddler_wins & jumper_is_picked)
        picked = jnp.where(jumper_is_picked, jumpers, inside)
        return jnp.where(straddler_wins, straddlers, picked)


def _product(a: jax.Array, b: jax.Array) -> Pair:
    """Multiplies uint32 by halves of 16 bits."""
    half = jnp.uint32(0xFFFF)
    a_high, a_low, b_high, b_low = a >> 16, a & half, b >> 16, b & half
    middle = a_high * b_low + ((a_low * b_low) >> 16)
    other = a_low * b_high + (middle & half)
    return Pair(a_high * b_high + (middle >> 16) + (other >> 16), a * b)


def _below(key: jax.Array, shape: tuple[int, ...], length: Pair) -> Pair:
    """Draws uniform integers in `[0, length)`; 0 if the length is 0.

    They are `floor(bits length / 2^64)`, with 64 random bits. The sum omits a carry to the last
    bit, which changes nothing for lengths below 2^32.
    """
    high, low = jax.random.bits(key, (2, *shape), jnp.uint32)
    zero = jnp.zeros_like(high)
    middle = _product(high, length.low) + Pair(zero, _product(low, length.low).high)
    other = _product(low, length.high).high
    return _product(high, length.high) + Pair(zero, middle.high) + Pair(zero, other)


def _last_before(first: jax.Array, values: jax.Array, is_skipped: jax.Array) -> jax.Array:
    """Returns for each place the last value before it that is not skipped, or `first` `[1]`."""
    places = jnp.arange(1, values.shape[0] + 1, dtype=jnp.int32)
    last = jax.lax.cummax(jnp.where(is_skipped, 0, places))
    last = jnp.concatenate([jnp.zeros_like(last[:1]), last[:-1]])
    return jnp.concatenate([first, values])[last]
