"""Tables of class rows: the shards of one table, rows in bfloat16, and the slots of both."""

import contextlib
import dataclasses
import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.keras_internals import SlotOnDemand
from tf_largeout.types import Initializer, InitializerLike, Shape
from tf_largeout.variables import cluster
from tf_largeout.variables.initializers import PartInitializer, has_parts

_PIECE_BYTES = 2**26  # that `take_rows` copies at a time
_BLOCK = 2**24  # values that are float32 at a time
TABLE, SLOT_OF, _SLOTS = "_largeout_table", "_largeout_slot_of", "_largeout_slots"
_ROUNDED = "_largeout_bfloat16_rows"
SPARSE = "_largeout_sparse_gradients"
_log = logging.getLogger("tf_largeout")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowShard:
    """A range of the rows of a table, stored in a separate variable.

    `device_anchor` is a variable on the device that holds the rows. It is None for a table in
    one variable, which is on the device of the other weights of its layer.
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
        """Returns which of `ids` are in this shard; outer shards get ids out of range."""
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


_Placed = TypeVar("_Placed", bound=Any)  # has the method `place` of a `RowShard`
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
    shards: Sequence[_Shard], ids: tf.Tensor, function: Callable[[_Shard, tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """Applies `function` on the device of each id's shard; results are in the order of `ids`.

    `function` maps a shard and int64 `[m]`, rows of the shard, to a tensor `[m, ...]`.
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
    """Returns for each shard the positions of its rows in `ids`, and these rows, as its own."""
    firsts = [shard.first for shard in shards]
    ends = tf.constant(firsts[1:], tf.int64)
    owner = tf.searchsorted(ends, ids, side="right")
    places = tf.dynamic_partition(tf.range(tf.size(ids)), owner, len(firsts))
    parts = [tf.gather(ids, at) - first for at, first in zip(places, firsts, strict=True)]
    return places, parts


class ShardedTable:
    """A table whose rows are the rows of several variables, `[n_i, ...]`, in order.

    `table_of` returns the table of a variable. With it, an optimizer, which knows only the
    variables, saves and restores its slots as slots of one table.
    """

    def __init__(self, name: str, shards: Sequence[keras.Variable]) -> None:
        self.name, self.shards = name, tuple(shards)
        counts = [getattr(shard, "num_rows", shard.shape[0]) for shard in self.shards]
        self._ends = np.cumsum(counts).tolist()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table, `[n, ...]`; n is 0 for `SlotOnDemand`s without rows."""
        num_rows = sum(shard.shape[0] for shard in self.shards)
        return (num_rows, *self.shards[0].shape[1:])

    @property
    def path(self) -> str:
        """The path of the first variable, for messages."""
        return self.shards[0].path

    @property
    def dtype(self) -> str:
        """The dtype of the variables."""
        return keras.backend.standardize_dtype(self.shards[0].dtype)

    def spans(self) -> Iterator[tuple[keras.Variable, slice]]:
        """Yields each variable and its range of rows in the table."""
        for shard, begin, end in zip(self.shards, [0, *self._ends], self._ends, strict=False):
            yield shard, slice(begin, end)

    def assign(self, values: Any) -> None:
        """Sets all rows to an array `[n, ...]`, also in a file, one variable at a time."""
        for shard, rows in self.spans():
            shard.assign(values[rows])
        if isinstance(self.shards[0], SlotOnDemand) and self.shape[0]:
            self.create_rows()

    def create_rows(self) -> None:
        """Creates the rows of `SlotOnDemand`s that have none, so that all shards have rows."""
        for shard in self.shards:
            shard.create_rows()

    def numpy(self) -> np.ndarray:
        """Returns all rows, in the memory of this process."""
        values = np.empty(self.shape, self.shards[0].dtype)
        for shard, rows in self.spans():
            values[rows] = shard.numpy()
        return values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.numpy(), dtype)  # a copy in any case

    def rows(self, ids: np.ndarray) -> tf.Tensor:
        """Returns the rows `ids`, int64 `[n]`, n > 0, gathered on the devices of the shards."""
        shard_numbers = np.searchsorted(self._ends, ids, side="right")
        positions, parts = [], []
        for number, (shard, span) in enumerate(self.spans()):
            in_shard = np.flatnonzero(shard_numbers == number)
            if in_shard.size:
                positions.append(in_shard.astype(np.int32))
                with tf.device(shard.value.device):
                    parts.append(tf.gather(shard.value, ids[in_shard] - span.start))
        return parts[0] if len(parts) == 1 else tf.dynamic_stitch(positions, parts)

    def take_rows(
        self, before: "ShardedTable", ids: np.ndarray, others: tf.Tensor | None = None
    ) -> None:
        """Sets the first n rows to rows `ids`, `[n]`, of `before`, and the next to `others`.

        They are copied from device to device in pieces of 64 MiB. So a device needs memory for
        its own rows and one piece, and this process none if the shards are on other machines.
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
    """Returns the bounds of the pieces of a shard's rows. No piece crosses `border`."""
    bytes_per_row = max(1, math.prod(shard.shape[1:])) * tf.as_dtype(shard.dtype).size
    size = max(1, _PIECE_BYTES // bytes_per_row)
    before = range(span.start, min(border, span.stop), size)
    after = range(max(border, span.start), span.stop, size)
    return itertools.pairwise([*before, *after, span.stop])


def create_table(name: str, shards: Sequence[keras.Variable]) -> ShardedTable:
    """Creates a `ShardedTable`, which `table_of` then returns for each of its variables."""
    found = ShardedTable(name, shards)
    for shard in shards:
        setattr(shard, TABLE, found)
    return found


def bounds(num_rows: int, num_shards: int) -> list[tuple[int, int]]:
    """Returns the bounds of `num_shards` ranges of rows, whose sizes differ by at most 1."""
    ends = [num_rows * number // num_shards for number in range(num_shards + 1)]
    return list(itertools.pairwise(ends))


def table_of(variable: Any) -> ShardedTable | None:
    """Returns the table of which a variable is a shard, or None."""
    return getattr(variable, TABLE, None)


def is_shard(variable: Any) -> bool:
    """Returns whether `variable` is a shard of a table, or a slot of a shard."""
    return table_of(getattr(variable, SLOT_OF, variable)) is not None


def mark_sparse(weight: keras.Variable) -> keras.Variable:
    """Marks a variable whose gradients are usually sparse, and returns it."""
    setattr(weight, SPARSE, True)
    return weight


def join_shards(variables: Iterable[keras.Variable]) -> list[keras.Variable | ShardedTable]:
    """Returns variables with a `ShardedTable` in the place of the first of its shards.

    Slots of an optimizer are joined in the same way, one table for each kind.
    """
    variables = list(variables)
    slots: dict[int, list[keras.Variable]] = {}
    for one in variables:
        if hasattr(one, SLOT_OF):
            slots.setdefault(id(getattr(one, SLOT_OF)), []).append(one)
    found: list[keras.Variable | ShardedTable] = []
    for one in variables:
        reference = getattr(one, SLOT_OF, one)
        table = table_of(reference)
        if table is None:
            found.append(one)
        elif reference is table.shards[0]:
            found.append(table if reference is one else _slot_table(one, table, slots))
    return found


def _slot_table(
    slot: keras.Variable, table: ShardedTable, slots: dict[int, list[keras.Variable]]
) -> ShardedTable:
    """Returns the slots of all shards that correspond to `slot` of the first shard."""
    if not hasattr(slot, _SLOTS):
        slots_of_first = slots[id(table.shards[0])]
        position = next(i for i, one in enumerate(slots_of_first) if one is slot)
        corresponding = [slots[id(shard)][position] for shard in table.shards]
        setattr(slot, _SLOTS, ShardedTable(slot.name, corresponding))
    return getattr(slot, _SLOTS)


def require_placement(layer: str, num_shards: int) -> None:
    """Raises a ValueError under a strategy, and in a function if servers are connected."""
    if tf.distribute.has_strategy():
        raise ValueError(
            f"Layer '{layer}' has num_shards={num_shards} and is built under "
            f"{type(tf.distribute.get_strategy()).__name__}, which places variables itself. "
            "Build the model outside of `strategy.scope()`, or use num_shards=1."
        )
    if cluster.addresses and not tf.executing_eagerly():
        raise ValueError(
            f"Layer '{layer}' has num_shards={num_shards} on other machines and is built in "
            "`fit` or in another function, where variables cannot be placed on machines. Build "
            "the model before: give it a `keras.Input`, or call it on a batch."
        )


def add_shards(
    layer: keras.layers.Layer,
    name: str,
    shape: tuple[int, ...],
    initializer: Initializer,
    argument: str,
    rows_dtype: str | None = None,
) -> list[keras.Variable]:
    """Adds the weights of one table to a layer with `num_shards`, one per shard, as `NAME_i`.

    A ValueError, which names `argument`, is raised if the initializer has no parts.
    """
    shards = []
    for number, (first, end) in enumerate(bounds(shape[0], layer.num_shards)):
        part = PartInitializer(initializer, shape, first, argument)
        _log.info(
            "Layer '%s', %s: creating rows %d to %d of %d on %s.",
            layer.name,
            name,
            first,
            end - 1,
            shape[0],
            cluster.address_of(number) or "this machine",
        )
        device = cluster.device_of(number)
        with tf.device(device) if device else contextlib.nullcontext():
            part_shape = (end - first, *shape[1:])
            weight = layer.add_class_weight(f"{name}_{number}", part_shape, part, rows_dtype)
        setattr(layer, f"{name}_{number}", weight)  # checkpoints save attributes
        shards.append(weight)
    create_table(name, shards)
    return shards


def add_rows(
    layer: keras.layers.Layer, name: str, shape: Shape, initializer: InitializerLike
) -> keras.Variable:
    """Adds a bfloat16 weight to a layer, with the rounded values of a float32 weight.

    If the initializer can be evaluated in parts, no float32 tensor has all rows. This is not
    possible in a function, and under a strategy.
    """
    in_float32: Initializer = keras.initializers.get(initializer)
    is_local = tf.executing_eagerly() and not tf.distribute.has_strategy()
    in_blocks = is_local and has_parts(in_float32)

    def rounded(shape: Shape, dtype: str | None = None) -> tf.Tensor:
        return tf.cast(in_float32(shape, "float32"), dtype)

    first_values = "zeros" if in_blocks else rounded
    weight = layer.add_class_weight(name, shape, first_values, dtype="bfloat16")
    for first, end in row_blocks(weight.shape) if in_blocks else ():
        part = PartInitializer(in_float32, tuple(weight.shape), first, f"{name}_initializer")
        values = part((end - first, *weight.shape[1:]), "float32")
        set_rows(weight, first, tf.cast(values, tf.bfloat16))
    return mark(weight)


def mark(weight: keras.Variable, is_shared: bool = False) -> keras.Variable:
    """Marks a bfloat16 variable as class rows that are rounded at random, and returns it."""
    setattr(weight, _ROUNDED, "shared" if is_shared else "own")
    return weight


def is_marked(variable: Any) -> bool:
    """Returns whether a variable has class rows that are rounded at random."""
    return hasattr(variable, _ROUNDED)


def is_shared(variable: Any) -> bool:
    """Returns whether they are the table of another layer, which looks up rows in bfloat16."""
    return getattr(variable, _ROUNDED, None) == "shared"


def set_rows(weight: keras.Variable, first: int, rows: tf.Tensor) -> None:
    """Sets rows from `first` on; `weight.value[first:end].assign` would read all rows."""
    ids = tf.range(first, first + rows.shape[0], dtype=tf.int64)
    weight.value.scatter_update(tf.IndexedSlices(rows, ids))


def row_blocks(
    shape: Sequence[int], numbers: int = _BLOCK, multiple: int = 1
) -> Iterator[tuple[int, int]]:
    """Yields ranges `[first, end)` of rows with at most `numbers` numbers.

    All ranges but the last have a multiple of `multiple` rows, at least one.
    """
    rows = max(1, numbers // max(1, math.prod(shape[1:])) // multiple) * multiple
    for first in range(0, shape[0], rows):
        yield first, min(first + rows, shape[0])


@tf.custom_gradient
def widened(rows: tf.Tensor) -> tf.Tensor:
    """Returns bfloat16 rows in float32. Their gradient is float32, not rounded to bfloat16."""
    return tf.cast(rows, tf.float32), lambda d_rows: d_rows
