"""`RowShard`: a range of the rows of a table, and the device that holds them."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import keras
import tensorflow as tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowShard:
    """A range of the rows of a table, stored in a separate variable.

    Attributes:
        first: The first row.
        num_rows: Number of rows.
        number: The number of this shard, from 0.
        num_shards: Number of shards.
        device_anchor: A variable on the device that holds the rows. None for a table in one
            variable, which is on the same device as the other weights of its layer.
    """

    first: int
    num_rows: int
    number: int = 0
    num_shards: int = 1
    device_anchor: keras.Variable | None = None

    def place(self) -> AbstractContextManager[None]:
        """Returns the scope of the device that holds the rows."""
        anchor = self.device_anchor
        device = None if anchor is None else getattr(anchor.value, "device", None)
        return tf.device(device) if device else contextlib.nullcontext()

    def name_of(self, name: str) -> str:
        """Returns the name of a weight that belongs to this shard only."""
        return name if self.num_shards == 1 else f"{name}_{self.number}_of_{self.num_shards}"

    def contains(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns which of `ids` are rows of this shard, as bools.

        Ids that are out of range count as rows of the first or the last shard, whose ops
        reject them.
        """
        low, high = ids >= self.first, ids < self.first + self.num_rows
        is_last = self.number == self.num_shards - 1
        return high if self.number == 0 else low if is_last else low & high

    def to_local(self, ids: tf.Tensor) -> tf.Tensor:
        """Converts rows of the table to rows of this shard; those of other shards become -1."""
        if self.num_shards == 1:
            return ids
        is_own = self.contains(ids)
        return tf.where(is_own, ids if self.number == 0 else ids - self.first, -1)

    def to_global(self, ids: tf.Tensor) -> tf.Tensor:
        """Converts rows of this shard, padded with -1, to rows of the table."""
        return ids if self.first == 0 else tf.where(ids < 0, ids, ids + self.first)


class Placed(Protocol):
    """A part of something that is in shards."""

    def place(self) -> AbstractContextManager[None]:
        """Returns the scope of the device that holds the rows of the shard."""


_Placed = TypeVar("_Placed", bound=Placed)
_Shard = TypeVar("_Shard", bound=RowShard)
_Found = TypeVar("_Found")


def on_each(parts: Sequence[_Placed], function: Callable[[_Placed], _Found]) -> list[_Found]:
    """Returns the results of `function(part)`, each on the device of the part's rows."""
    found = []
    for part in parts:
        with part.place():
            found.append(function(part))
    return found


def map_by_shard(
    shards: Sequence[_Shard],
    ids: tf.Tensor,
    function: Callable[[_Shard, tf.Tensor], tf.Tensor],
) -> tf.Tensor:
    """Applies `function` on each id's shard and returns the results in the order of `ids`.

    Args:
        shards: All shards of the table.
        ids: int64 `[n]`, rows of the table.
        function: Maps a shard and int64 `[m]`, rows of the shard, to a tensor `[m, ...]`. It
            runs on the device of the shard.

    Returns:
        `[n, ...]`.
    """
    if len(shards) == 1:
        return on_each(shards, lambda shard: function(shard, ids))[0]
    places, parts = split(shards, ids)
    part_of = {shard.number: part for shard, part in zip(shards, parts, strict=True)}
    found = on_each(shards, lambda shard: function(shard, part_of[shard.number]))
    return tf.dynamic_stitch(places, found)


def split(
    shards: Sequence[RowShard], ids: tf.Tensor
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Splits `ids` by shard.

    Returns:
        For each shard the positions in `ids` of its rows, int64 `[m]`, and these rows, as rows
        of the shard.
    """
    firsts = [shard.first for shard in shards]
    ends = tf.constant(firsts[1:], tf.int64)
    owner = tf.searchsorted(ends, ids, side="right")
    places = tf.dynamic_partition(tf.range(tf.size(ids)), owner, len(firsts))
    parts = [tf.gather(ids, at) - first for at, first in zip(places, firsts, strict=True)]
    return places, parts
