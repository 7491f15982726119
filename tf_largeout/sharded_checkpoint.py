"""What `tf.train.Checkpoint` sees of tables that are kept in several variables: one each.

TensorFlow writes such a table in slices, each by the machine that has it, and reads any rows of
it, so that a checkpoint does not depend on the number of shards.
"""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from tf_largeout import row_shards
from tf_largeout.row_shards import ShardedTable

_SLICES, _LISTS = "_largeout_slices", "_largeout_lists"


def children(owner: Any, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an object holds, with tables in place of their shards.

    Args:
        owner: The object, a layer or an optimizer.
        found: Its children by name, as `_trackable_children` gives them.

    Returns:
        `found`, where none is a shard or a list with one in it.
    """
    changed: dict[str, Any] = {}
    for name, child in found.items():
        table = row_shards.table_of(child)
        if table is not None:
            changed[table.name] = _slices(table)
        elif _has_shards(child):
            changed[name] = _whole_list(owner, name, child)
        else:
            changed[name] = child
    return changed


def _has_shards(child: Any) -> bool:
    return isinstance(child, (list, tuple)) and any(map(row_shards.is_part, child))


def _slices(table: ShardedTable) -> Any:
    """A table as what TensorFlow saves in slices; the same object at each call."""
    if not hasattr(table, _SLICES):
        values = [shard.value for shard in table.shards]
        setattr(table, _SLICES, tf.__internal__.distribute.ShardedVariable(values, table.name))
    return getattr(table, _SLICES)


def _whole_list(owner: Any, name: str, variables: list[keras.Variable]) -> Any:
    """A list of variables as it would be without shards; the same object at each call."""
    known = owner.__dict__.setdefault(_LISTS, {})
    key = name, *map(id, variables)
    if key not in known:
        holder = tf.Module()  # whose lists TensorFlow can save
        holder.list = [
            _slices(one) if isinstance(one, ShardedTable) else one
            for one in row_shards.whole(variables)
        ]
        known[key] = holder
    return known[key].list
