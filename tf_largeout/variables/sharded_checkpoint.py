"""What `tf.train.Checkpoint` sees of tables that are kept in several variables: one each.

TensorFlow writes such a table in slices, each by the machine that has it, and reads any rows of
it, so that a checkpoint does not depend on the number of shards.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.keras_internals import sharded_variable
from tf_largeout.variables import sharded_table
from tf_largeout.variables.sharded_table import ShardedTable

_SLICES, _LISTS, _AWAITED = "_largeout_slices", "_largeout_lists", "_largeout_awaited"


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
        table = sharded_table.table_of(child)
        if name in _awaited(owner):
            changed[name] = _awaited(owner)[name].list
        elif table is not None:
            changed[table.name] = _slices(table)
        elif _has_shards(child):
            changed[name] = _whole_list(owner, name, child)
        else:
            changed[name] = child
    return changed


def awaited(owner: Any, name: str, child: Any) -> Any:
    """What takes that of a checkpoint which is for a list of an optimizer that is not built.

    Only with its slots an optimizer knows which of them are shards of a table, which the
    checkpoint has as a whole. What `give` adds to this list then gets its values, by
    TensorFlow's deferred restoration.

    Args:
        owner: The optimizer.
        name: Name of its child in the checkpoint.
        child: The child; None where `owner` has none of that name so far.
    """
    if not (child is None or isinstance(child, (list, tuple))):
        return child
    if name not in _awaited(owner):
        _awaited(owner)[name] = _holder(child or [])
    return _awaited(owner)[name].list


def give(owner: Any) -> None:
    """Has TensorFlow restore the slots of an optimizer that was just built.

    Raises:
        ValueError: If what the checkpoint has by the name of a list is no such.
    """
    for name, holder in _awaited(owner).items():
        child = getattr(owner, name, [])
        if not isinstance(child, (list, tuple)):
            raise ValueError(
                f"'{name}' of optimizer '{owner.name}' cannot be restored after the checkpoint "
                "was read. Call `optimizer.build(model.trainable_variables)` before."
            )
        for one in _as_saved(child)[len(holder.list) :]:
            holder.list.append(one)


def _awaited(owner: Any) -> dict[str, tf.Module]:
    return owner.__dict__.setdefault(_AWAITED, {})


def _has_shards(child: Any) -> bool:
    return isinstance(child, (list, tuple)) and any(map(sharded_table.is_part, child))


def _slices(table: ShardedTable) -> Any:
    """A table as what TensorFlow saves in slices; the same object at each call."""
    if not hasattr(table, _SLICES):
        values = [shard.value for shard in table.shards]
        setattr(table, _SLICES, sharded_variable(values, table.name))
    return getattr(table, _SLICES)


def _whole_list(owner: Any, name: str, variables: list[keras.Variable]) -> Any:
    """A list of variables as it would be without shards; the same object at each call."""
    known = owner.__dict__.setdefault(_LISTS, {})
    key = name, *map(id, variables)
    if key not in known:
        known[key] = _holder(_as_saved(variables))
    return known[key].list


def _as_saved(variables: Sequence[keras.Variable]) -> list[Any]:
    return [
        _slices(one) if isinstance(one, ShardedTable) else one
        for one in sharded_table.whole(variables)
    ]


def _holder(children: Sequence[Any]) -> tf.Module:
    """An object whose `list` TensorFlow can save."""
    holder = tf.Module()
    holder.list = list(children)
    return holder
