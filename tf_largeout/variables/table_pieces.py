"""Large tables in files, in pieces, so that no copy of all rows is in memory."""

import math
import re
from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.variables.bfloat16_rows import set_rows
from tf_largeout.variables.sharded_table import ShardedTable

_LARGE, _PIECE = 2**30, 2**28  # bytes of a table that is saved in pieces, and of a piece
_NAME = re.compile(r"(.+)\.rows_(\d+)_to_(\d+)_of_(\d+)$")


def save(
    name: str, table: keras.Variable | ShardedTable, store: MutableMapping[str, Any]
) -> None:
    """Puts a table into `store`, which Keras writes to a file.

    A table above 1 GiB becomes pieces of 256 MiB, because Keras copies each array. The name of
    a piece says which rows it has.
    """
    shape = tuple(table.shape)
    row_bytes = math.prod(shape[1:]) * tf.as_dtype(table.dtype).size
    if not shape or shape[0] * row_bytes <= _LARGE:
        store[name] = table.numpy() if isinstance(table, ShardedTable) else table
        return
    step = max(1, _PIECE // row_bytes)
    for first in range(0, shape[0], step):
        end = min(first + step, shape[0])
        if isinstance(table, ShardedTable):
            rows = table.rows(np.arange(first, end))
        else:
            rows = tf.gather(table.value, tf.range(first, end))  # a slice reads all rows
        store[f"{name}.rows_{first}_to_{end}_of_{shape[0]}"] = rows


class _Piece(NamedTuple):
    """Rows of a table in a file."""

    first: int
    end: int
    total: int
    name: str


class SavedTable:
    """A table that a file has in pieces.

    Args:
        store: The file, as Keras reads it.
        pieces: The pieces, in order.

    Attributes:
        shape: Shape of the table; it fits no weight if pieces are missing.
        dtype: Dtype of the table in the file.
    """

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


def load(store: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arrays in `store` by name, and a `SavedTable` for each table in pieces."""
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
        values[table] = SavedTable(store, sorted(pieces))
    return values
