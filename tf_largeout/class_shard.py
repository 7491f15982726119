"""`ClassShard`: some rows of a class matrix, and the device that has them."""

import contextlib
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import keras
import tensorflow as tf


class ClassShard(NamedTuple):
    """A range of the classes of a matrix, which a search structure is built over.

    Attributes:
        matrix: The `ClassMatrix` of its rows, whose class 0 is `first`.
        first: The first class.
        number: Which of the shards it is, from 0.
        num_shards: How many there are.
        beside: The variable whose device has the rows; None for a matrix in one piece, which
            is where everything else of its layer is.
    """

    matrix: Any
    first: int
    number: int
    num_shards: int
    beside: keras.Variable | None

    def place(self) -> AbstractContextManager[None]:
        """The scope of the device that has the rows."""
        device = None if self.beside is None else getattr(self.beside.value, "device", None)
        return tf.device(device) if device else contextlib.nullcontext()

    def name_of(self, name: str) -> str:
        """What a weight is called that belongs to this shard alone."""
        return name if self.num_shards == 1 else f"{name}_{self.number}_of_{self.num_shards}"

    def has(self, ids: tf.Tensor) -> tf.Tensor:
        """Which of `ids` it scores, as bools.

        Ids that no class has are those of the first or the last shard, whose ops refuse them.
        """
        low, high = ids >= self.first, ids < self.first + self.matrix.num_classes
        is_last = self.number == self.num_shards - 1
        return high if self.number == 0 else low if is_last else low & high

    def own(self, ids: tf.Tensor) -> tf.Tensor:
        """`ids` as numbers of its rows; -1 in place of those of other shards."""
        has = self.has(ids)
        return tf.where(has, ids if self.number == 0 else ids - self.first, -1)
