"""Random arguments of ops: most are valid, some are not."""

import dataclasses
import zlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tests.fuzz.unfit_variables import UNFIT_VARIABLES

SIZES = (0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 100, 129)
EXTREME_INTEGERS = (
    *(0, -1, -2, -(2**31), -(2**63), 2**20 + 1, 2**24 + 1, 2**31 - 1, 2**31, 2**32),
    *(2**33 + 1, 2**40, 2**61 + 1, 2**62, 2**63 - 1),
)
SPECIAL_FLOATS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 3.4e38, -3.4e38, 1e-45, 1e-39, 1.0)
SCALES = (1.0, 1.0, 1.0, 0.0, 100.0, 1e-30, 1e30, 1e38)
# Probability of an invalid argument, chosen per call.
ODD_CHANCES = (0.0, 0.0, 0.04, 0.2)
BIG_CHANCE = 0.005


@dataclasses.dataclass
class Call:
    """A call `function(*arguments, **options)`, and the checks of its result.

    Attributes:
        check: Function that raises an AssertionError if the result is wrong.
        check_refused: Function that checks the variables after the call has raised an error.
    """

    function: Callable
    arguments: tuple
    options: dict
    check: Callable
    check_refused: Callable = lambda: None


class Draws:
    """The random numbers of one call, determined by the op, the seed and the call's number."""

    def __init__(self, op, seed, number):
        self.number = number
        self.random = np.random.default_rng([seed, number, zlib.crc32(op.encode())])
        self.odd_chance = self.pick(ODD_CHANCES)
        self.is_big = self.chance(BIG_CHANCE)
        self.in_graph = self.chance(0.02)
        # MiB that the op may allocate if memory is short, or None.
        short = self.chance(0.5 if self.is_big else 0.02)
        self.memory = self.pick((8, 16, 32, 64, 128)) if short else None
        self.variables = []

    def chance(self, probability):
        return bool(self.random.random() < probability)

    def odd(self):
        return self.chance(self.odd_chance)

    def pick(self, values):
        return values[int(self.random.integers(len(values)))]

    def size(self, least=0):
        """Returns a small dimension, usually not a multiple of a block size."""
        return max(least, self.pick(SIZES[: self.random.integers(3, len(SIZES) + 1)]))

    def rows(self, least=0, most=2**18):
        """Returns a batch size or number of classes, which is large in some calls."""
        if not self.is_big:
            return self.size(least)
        self.is_big = False
        return int(2 ** self.random.uniform(12, np.log2(most)))

    def attribute(self, value):
        """Returns `value`, or an invalid integer."""
        if not self.odd():
            return int(value)
        if self.chance(0.5):
            return self.pick(EXTREME_INTEGERS)
        return int(2 ** self.random.uniform(0, 62.9))

    def array(self, *shape):
        """Returns float64 numbers of one scale. Some are not finite or extreme."""
        values = self.random.normal(size=shape) * self.pick(SCALES)
        if not self.chance(0.2):
            return values
        special = self.random.choice(SPECIAL_FLOATS, size=shape)
        return np.where(
            self.random.random(shape) < self.pick((0.02, 0.3, 1.0)), special, values
        )

    def floats(self, *shape):
        """Returns a float32 tensor."""
        values = self.array(*self._shape(shape))
        with np.errstate(over="ignore"):
            tensor = tf.constant(values, tf.float32)
        return tf.cast(tensor, tf.float64) if self.odd() and self.chance(0.1) else tensor

    def ids(self, shape, end, least=-1, dtype=np.int64):
        """Returns a tensor of integers in `[least, end)`, or of invalid ones."""
        shape = self._shape(shape)
        values = self.random.integers(least, max(end, least + 1), size=shape)
        if self.chance(0.1):
            values = np.full(shape, self.random.integers(least, max(end, least + 1)))
        if self.odd():
            limits = np.iinfo(dtype)
            extremes = [
                value
                for value in (*EXTREME_INTEGERS, end, end + 1, -3)
                if limits.min <= value <= limits.max
            ]
            others = self.random.choice(np.array(extremes, np.int64), size=shape)
            values = np.where(self.random.random(shape) < 0.2, others, values)
        return tf.constant(np.asarray(values).astype(dtype))

    def index_type(self):
        return self.pick((np.int32, np.int64))

    def seed(self):
        """Returns an int64 `[2]`."""
        low, high = -(2**63), 2**63 - 1
        return tf.constant(self.random.integers(low, high, size=self._shape((2,))))

    def scalar(self):
        """Returns a hyperparameter."""
        if self.odd():
            return float(self.pick((*SPECIAL_FLOATS, -1.0, 1e38, 1e-30)))
        return self.pick((0.0, 1.0, 0.9, 0.1, 0.001))

    def variable(self, value):
        """Returns a variable with this value, or an invalid argument instead."""
        if self.odd():
            return self.pick(UNFIT_VARIABLES)(tf.constant(value), self.variables)
        made = tf.Variable(value)
        self.variables.append(made)
        return made

    def _shape(self, shape):
        """Returns `shape`, or a shape of another rank or size."""
        shape = list(shape)
        if not self.odd():
            return tuple(shape)
        place = int(self.random.integers(len(shape) + 1))
        changes = [lambda: shape.insert(place, self.pick((0, 1, 2))), shape.clear]
        if place < len(shape):
            changes += [
                lambda: shape.pop(place),
                lambda: shape.__setitem__(place, shape[place] + 1),
                lambda: shape.__setitem__(place, 0),
                lambda: shape.__setitem__(place, 1),
            ]
        self.pick(changes)()
        return tuple(shape)
