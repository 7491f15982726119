"""`ClassShard`: some rows of a class matrix, and the device that has them."""

import contextlib
from collections.abc import Callable, Sequence
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

    def whole(self, ids: tf.Tensor) -> tf.Tensor:
        """Numbers of its rows, padded with -1, as ids of all classes."""
        return ids if self.first == 0 else tf.where(ids < 0, ids, ids + self.first)


def ask_owners(
    shards: Sequence[ClassShard],
    ids: tf.Tensor,
    function: Callable[[ClassShard, tf.Tensor], tf.Tensor],
) -> tf.Tensor:
    """What each shard says of the classes that it has, in the order of `ids`.

    Args:
        shards: All of them.
        ids: int64 `[n]`, classes.
        function: Of a shard and int64 `[m]`, numbers of its rows, a tensor `[m, ...]`. It runs
            on the device of the shard.

    Returns:
        `[n, ...]`.
    """
    if len(shards) == 1:
        with shards[0].place():
            return function(shards[0], ids)
    places, parts = split(shards, ids)
    found = []
    for shard, part in zip(shards, parts, strict=True):
        with shard.place():
            found.append(function(shard, part))
    return tf.dynamic_stitch(places, found)


def split(
    shards: Sequence[ClassShard], ids: tf.Tensor
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Places in `ids`, int64 `[m]`, of those of each shard; and these, as its rows."""
    firsts = [shard.first for shard in shards]
    ends = tf.constant(firsts[1:], tf.int64)
    owner = tf.searchsorted(ends, ids, side="right")
    places = tf.dynamic_partition(tf.range(tf.size(ids)), owner, len(firsts))
    parts = [tf.gather(ids, at) - first for at, first in zip(places, firsts, strict=True)]
    return places, parts
