"""`ShardedTable`: a table of rows that is kept in several variables."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

_BYTES_OF_A_PIECE = 2**26  # of the rows that `take_rows` moves at a time
_TABLE, _SLOT_OF, _SLOTS = "_largeout_table", "_largeout_slot_of", "_largeout_slots"


class ShardedTable:
    """A table whose rows are those of several variables, one after the other.

    Whoever has one of the variables finds the table by `table_of`; so an optimizer, which
    knows variables alone, saves and restores its slots as those of the whole table.

    Args:
        name: Name of the table in files.
        shards: Keras variables `[n_i, ...]`, which differ in `n_i` alone.

    Attributes:
        name: As given.
        shards: As given.
    """

    def __init__(self, name: str, shards: Sequence[keras.Variable]) -> None:
        self.name, self.shards = name, tuple(shards)
        self._ends = np.cumsum([shard.shape[0] for shard in self.shards]).tolist()

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the table, `[n, ...]`."""
        return (self._ends[-1], *self.shards[0].shape[1:])

    def spans(self) -> Iterator[tuple[keras.Variable, slice]]:
        """Each variable, and which rows of the table it has."""
        for shard, begin, end in zip(self.shards, [0, *self._ends], self._ends, strict=False):
            yield shard, slice(begin, end)

    def assign(self, values: Any) -> None:
        """Sets all rows, a variable at a time.

        Args:
            values: Array `[n, ...]`, which may be one in a file.
        """
        for shard, rows in self.spans():
            shard.assign(values[rows])

    def numpy(self) -> np.ndarray:
        """All rows, in the memory of this process."""
        values = np.empty(self.shape, self.shards[0].dtype)
        for shard, rows in self.spans():
            values[rows] = shard.numpy()
        return values

    def rows(self, ids: np.ndarray) -> tf.Tensor:
        """Some rows, `[n, ...]`, gathered where they are.

        Args:
            ids: int64 `[n]`, at least one, from 0 to the number of rows.
        """
        owners = np.searchsorted(self._ends, ids, side="right")
        places, parts = [], []
        for number, (shard, span) in enumerate(self.spans()):
            own = np.flatnonzero(owners == number)
            if own.size:
                places.append(own.astype(np.int32))
                with tf.device(shard.value.device):
                    parts.append(tf.gather(shard.value, ids[own] - span.start))
        return parts[0] if len(parts) == 1 else tf.dynamic_stitch(places, parts)

    def take_rows(
        self, before: "ShardedTable", ids: np.ndarray, others: tf.Tensor | None = None
    ) -> None:
        """Sets rows to those of another table, which go from device to device.

        They go in pieces of 64 MiB. So no device needs memory for more than the rows that it
        has, and this process, where none of them are, for none.

        Args:
            before: A table of rows of the same shape.
            ids: int64 `[n]`: which of its rows the first n rows become.
            others: The rows after these, `[m, ...]`; None leaves them as they are.
        """
        for shard, span in self.spans():
            with tf.device(shard.value.device):
                for first, end in _pieces(span, len(ids), shard):
                    if first < len(ids):
                        rows = before.rows(ids[first:end])
                    elif others is not None:
                        rows = tf.cast(others[first - len(ids) : end - len(ids)], shard.dtype)
                    else:
                        break
                    shard.value[first - span.start : end - span.start].assign(rows)


def _pieces(span: slice, border: int, shard: keras.Variable) -> Iterator[tuple[int, int]]:
    """First row and end of each piece of a shard's rows; none has rows on both sides."""
    bytes_of_a_row = max(1, math.prod(shard.shape[1:])) * tf.as_dtype(shard.dtype).size
    size = max(1, _BYTES_OF_A_PIECE // bytes_of_a_row)
    before = range(span.start, min(border, span.stop), size)
    after = range(max(border, span.start), span.stop, size)
    return itertools.pairwise([*before, *after, span.stop])


def table(name: str, shards: Sequence[keras.Variable]) -> ShardedTable:
    """A `ShardedTable` that `table_of` gives for each of its variables from now on."""
    found = ShardedTable(name, shards)
    for shard in shards:
        setattr(shard, _TABLE, found)
    return found


def bounds(num_rows: int, num_shards: int) -> list[tuple[int, int]]:
    """First row and end of each of `num_shards` ranges of rows, of sizes that differ by 1."""
    ends = [num_rows * number // num_shards for number in range(num_shards + 1)]
    return list(itertools.pairwise(ends))


def table_of(variable: Any) -> ShardedTable | None:
    """The table that a variable is a part of; None for one that stands alone."""
    return getattr(variable, _TABLE, None)


def is_part(variable: Any) -> bool:
    """Whether it is a part of a table, or a slot of such a part."""
    return table_of(getattr(variable, _SLOT_OF, variable)) is not None


def mark_slot(slot: keras.Variable, variable: Any) -> None:
    """Says that `slot` is one of an optimizer's, with a row for each of `variable`."""
    if table_of(variable) is not None:
        setattr(slot, _SLOT_OF, variable)


def whole(variables: Iterable[keras.Variable]) -> list[keras.Variable | ShardedTable]:
    """Weights, or variables of an optimizer, as they would be if no table were sharded.

    Args:
        variables: All of them, in their order.

    Returns:
        The variables, but for those that are parts of tables, or slots of such; in place of the
        first of each table, or of the slots that correspond, a `ShardedTable` of them.
    """
    variables = list(variables)
    slots: dict[int, list[keras.Variable]] = {}
    for one in variables:
        if hasattr(one, _SLOT_OF):
            slots.setdefault(id(getattr(one, _SLOT_OF)), []).append(one)
    found: list[keras.Variable | ShardedTable] = []
    for one in variables:
        reference = getattr(one, _SLOT_OF, one)
        of = table_of(reference)
        if of is None:
            found.append(one)
        elif reference is of.shards[0]:
            found.append(of if reference is one else _slots_like(one, of, slots))
    return found


def _slots_like(
    slot: keras.Variable, table: ShardedTable, slots: dict[int, list[keras.Variable]]
) -> ShardedTable:
    """Of all variables of a table the slot that is to them what `slot` is to the first."""
    if not hasattr(slot, _SLOTS):
        of_first = slots[id(table.shards[0])]
        place = next(place for place, one in enumerate(of_first) if one is slot)
        mates = [slots[id(one)][place] for one in table.shards]
        setattr(slot, _SLOTS, ShardedTable(table.name, mates))
    return getattr(slot, _SLOTS)
