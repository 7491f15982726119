"""Weights in files and checkpoints: by name, large tables in pieces, shards as one table."""

import logging
import math
import re
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.keras_internals import SlotOnDemand, SlotsOnDemand, sharded_variable
from tf_largeout.types import Shape
from tf_largeout.variables import class_rows
from tf_largeout.variables.class_rows import ShardedTable, set_rows

_LARGE, _PIECE = 2**30, 2**28  # bytes of a table that is saved in pieces, and of a piece
_NAME = re.compile(r"(.+)\.rows_(\d+)_to_(\d+)_of_(\d+)$")


class _Piece(NamedTuple):
    """Rows of a table in a file."""

    first: int
    end: int
    total: int
    name: str


class _SavedTable:
    """A table that a file has in pieces. Its shape fits no weight if pieces are missing."""

    def __init__(self, store: Mapping[str, Any], pieces: list[_Piece]) -> None:
        self._store, self._pieces = store, pieces
        rows = store[pieces[0].name]
        ends = [0, *(piece.end for piece in pieces)]
        is_whole = [*(piece.first for piece in pieces), pieces[0].total] == ends
        self.shape = (pieces[0].total if is_whole else -1, *rows.shape[1:])
        self.dtype = rows.dtype

    def assign_to(self, table: keras.Variable | ShardedTable) -> None:
        """Sets all rows of `table`, one piece at a time."""
        spans: list[tuple[Any, slice]]
        if isinstance(table, ShardedTable):
            spans = list(table.spans())
        elif isinstance(table.value, tf.distribute.DistributedValues):
            table.assign(np.concatenate([self._store[piece.name] for piece in self._pieces]))
            return
        else:
            spans = [(table, slice(0, self.shape[0]))]
        for piece in self._pieces:
            rows = self._store[piece.name]
            for variable, span in spans:
                first, end = max(piece.first, span.start), min(piece.end, span.stop)
                if first < end:
                    part = tf.cast(
                        rows[first - piece.first : end - piece.first], variable.dtype
                    )
                    with tf.device(variable.value.device):
                        set_rows(variable, first - span.start, part)


def _load_tables(store: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arrays in `store` by name, and a `_SavedTable` for each table in pieces."""
    values: dict[str, Any] = {}
    tables: dict[str, list[_Piece]] = {}
    for name in store.keys():
        match = _NAME.match(name)
        if match is None:
            values[name] = store[name]
        else:
            table, *numbers = match.groups()
            first, end, total = map(int, numbers)
            tables.setdefault(table, []).append(_Piece(first, end, total, name))
    for table, pieces in tables.items():
        values[table] = _SavedTable(store, sorted(pieces))
    return values


NamedWeights: TypeAlias = Mapping[str, keras.Variable | ShardedTable]

_SHARD = re.compile(r"_\d+_of_\d+$")  # the ending that `RowShard.name_of` adds


def save(weights: NamedWeights, store: MutableMapping[str, Any]) -> None:
    """Puts weights into `store`, which Keras writes to a file.

    A table above 1 GiB becomes pieces of 256 MiB, because Keras copies each array. The name of
    a piece says which rows it has.
    """
    for name, table in weights.items():
        shape = tuple(table.shape)
        row_bytes = math.prod(shape[1:]) * tf.as_dtype(table.dtype).size
        if not shape or shape[0] * row_bytes <= _LARGE:
            store[name] = table.numpy() if isinstance(table, ShardedTable) else table
            continue
        step = max(1, _PIECE // row_bytes)
        for first in range(0, shape[0], step):
            end = min(first + step, shape[0])
            if isinstance(table, ShardedTable):
                rows = table.rows(np.arange(first, end))
            else:
                rows = tf.gather(table.value, tf.range(first, end))  # a slice reads all rows
            store[f"{name}.rows_{first}_to_{end}_of_{shape[0]}"] = rows


def load(
    weights: NamedWeights, store: Mapping[str, Any], layer: str, sampler: str | None
) -> None:
    """Sets all weights to those in `store`, or none, with a ValueError if they do not fit.

    The state of the sampler stays unchanged if the file has that of another class, and search
    structures of shards if it has another number of shards; the next step rebuilds them.
    """
    values = _load_tables(store)
    needed, needed_state = _shapes(weights)
    found, found_state = _shapes(values)
    if needed != found:
        widths = [{name: shape[1:] for name, shape in one.items()} for one in (needed, found)]
        raise ValueError(
            f"Layer '{layer}' has weights of the shapes: {needed}. The file has {found}. Build "
            "the layer as it was when they were saved, with `embeddings=` if it was tied. Only "
            "its sampler may differ."
            + " Then change the number of classes by `tf_largeout.resize_classes`."
            * (widths[0] == widths[1])
        )
    loaded = needed.keys() | _loaded_state(needed_state, found_state, layer, sampler)
    for name, weight in weights.items():
        if name not in loaded:
            continue
        dtypes = str(values[name].dtype), str(weight.dtype)
        if name.startswith("embeddings") and dtypes[0] != dtypes[1]:
            logging.getLogger("tf_largeout").warning(
                "The class rows of layer '%s' are %s in the file and %s in the layer. They "
                "are converted%s.",
                layer,
                *dtypes,
                " to the nearest number" if dtypes[1] == "bfloat16" else "",
            )
        if isinstance(values[name], _SavedTable):
            values[name].assign_to(weight)
        else:
            weight.assign(values[name])


def is_of_sampler(name: str) -> bool:
    """Returns whether a weight of that name holds state of a sampler."""
    return name == "seed_state" or name.startswith("sampler_")


def _shapes(arrays: Mapping[str, Any]) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """Returns the shapes of the weights of the layer by name, and of those of its sampler."""
    of_layer: dict[str, Shape] = {}
    of_sampler: dict[str, Shape] = {}
    for name, array in arrays.items():
        (of_sampler if is_of_sampler(name) else of_layer)[name] = tuple(array.shape)
    return of_layer, of_sampler


def _loaded_state(
    needed: Mapping[str, Shape], found: Mapping[str, Shape], layer: str, sampler: str | None
) -> set[str]:
    """Returns the names of the sampler's weights that can be loaded; logs which cannot."""
    if needed == found:
        return set(needed)
    if sampler is None:
        return set()
    log = logging.getLogger("tf_largeout").warning
    sharded = {_SHARD.sub("", name) for name in (*needed, *found) if _SHARD.search(name)}
    others, others_in_file = (
        {name: shape for name, shape in state.items() if _SHARD.sub("", name) not in sharded}
        for state in (needed, found)
    )
    if sharded and others == others_in_file:
        log(
            "The file has another number of shards than layer '%s'. Its %s rebuilds its search "
            "structures in the next step that searches.",
            layer,
            sampler,
        )
        return set(others)
    log(
        "The file has the state of another sampler than the %s of layer '%s', which starts "
        "with a new state.",
        sampler,
        layer,
    )
    return set()


# The end of the key of class rows, which an optimizer also lists.
_ROWS = re.compile(r"/(embeddings|_trainable_variables/\d+)/\.ATTRIBUTES/VARIABLE_VALUE$")
_SLICES, _LISTS = "_largeout_slices", "_largeout_lists"

# An attribute of an optimizer: placeholders for its slots, until `restore_slots`.
AWAITED = "_largeout_awaited"


def children(owner: Any, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns `_trackable_children` with tables in place of their shards."""
    changed: dict[str, Any] = {}
    awaited = getattr(owner, AWAITED, {})
    for name, child in found.items():
        table = class_rows.table_of(child)
        if name in awaited:
            changed[name] = awaited[name].list
        elif table is not None:
            changed[table.name] = _slices(table)
        elif isinstance(child, (list, tuple)) and any(map(class_rows.is_shard, child)):
            # Every call returns the same list.
            known = owner.__dict__.setdefault(_LISTS, {})
            key = name, *map(id, child)
            if key not in known:
                known[key] = _holder(_as_saved(child))
            changed[name] = known[key].list
        else:
            changed[name] = child
    return changed


def placeholder(owner: Any, name: str, child: Any) -> Any:
    """Returns a placeholder for a list of slots of an optimizer that is not built.

    Only a built optimizer knows which slots are shards of one table in the checkpoint. Then
    `restore_slots` adds them, and TensorFlow's deferred restoration sets them. `child` is None
    if the optimizer has no child of that name yet.
    """
    if not (child is None or isinstance(child, (list, tuple))):
        return child
    awaited = vars(owner).setdefault(AWAITED, {})
    if name not in awaited:
        awaited[name] = _holder(child or [])
    return awaited[name].list


def restore_slots(owner: Any) -> None:
    """Restores a newly built optimizer from the checkpoint that was read before.

    Raises a ValueError if the checkpoint has a list of slots where the optimizer has none.
    """
    for name, holder in getattr(owner, AWAITED).items():
        child = getattr(owner, name, [])
        if not isinstance(child, (list, tuple)):
            raise ValueError(
                f"'{name}' of optimizer '{owner.name}' cannot be restored after the checkpoint "
                "was read. Call `optimizer.build(model.trainable_variables)` first."
            )
        for one in _as_saved(child)[len(holder.list) :]:
            holder.list.append(one)


def require_dtype(weights: Iterable[keras.Variable], path: str, owner: str) -> None:
    """Raises a ValueError if a checkpoint has the class rows in another dtype than a layer.

    It finds rows by name and shape; one of several such tables with the right dtype suffices.
    """
    for table in class_rows.join_shards(weights):
        if table.name != "embeddings":
            continue
        reader = tf.train.load_checkpoint(path)
        dtypes = {
            reader.get_variable_to_dtype_map()[key].name
            for key, shape in reader.get_variable_to_shape_map().items()
            if _ROWS.search(key) and shape == list(table.shape)
        }
        dtype = keras.backend.standardize_dtype(table.dtype)
        if dtypes in ({"float32"}, {"bfloat16"}) and dtype not in dtypes:
            raise ValueError(
                f"The class rows of layer '{owner}' are {dtype}. Received: a checkpoint with "
                f"{dtypes.pop()} rows, and tf.train.Checkpoint does not convert them. Restore "
                "it into a model with rows of its dtype, call `save_weights` of that model, "
                "and `load_weights` of yours, which converts them."
            )


def _slices(table: ShardedTable) -> Any:
    """Returns the object of a table that TensorFlow saves in slices, for any shards.

    The machine of a shard writes its slice, and any range of rows can be read.
    """
    if not hasattr(table, _SLICES):
        if isinstance(table.shards[0], SlotOnDemand):
            setattr(table, _SLICES, SlotsOnDemand(table))
        else:
            values = [shard.value for shard in table.shards]
            setattr(table, _SLICES, sharded_variable(values, table.name))
    return getattr(table, _SLICES)


def _as_saved(variables: Sequence[keras.Variable]) -> list[Any]:
    return [
        _slices(one) if isinstance(one, ShardedTable) else one
        for one in class_rows.join_shards(variables)
    ]


def _holder(children: Sequence[Any]) -> tf.Module:
    """Returns an object whose `list` TensorFlow can save."""
    holder = tf.Module()
    holder.list = list(children)
    return holder
