"""Makes `tf.train.Checkpoint` save the shards of a table as one variable.

TensorFlow saves such a variable in slices. The machine of a shard writes the slice of the
shard, and any range of rows can be read. So a checkpoint does not depend on the number of
shards.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.keras_internals import sharded_variable
from tf_largeout.variables import sharded_table
from tf_largeout.variables.sharded_table import ShardedTable

# The end of the key of class rows, which an optimizer also lists.
_ROWS = re.compile(r"/(embeddings|_trainable_variables/\d+)/\.ATTRIBUTES/VARIABLE_VALUE$")
_SLICES, _LISTS, _AWAITED = "_largeout_slices", "_largeout_lists", "_largeout_awaited"


def children(owner: Any, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the children of an object with tables in place of their shards.

    Args:
        owner: A layer or an optimizer.
        found: Its children by name, the result of `_trackable_children`.

    Returns:
        Children by name, none of which is a shard or a list that contains one.
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


def placeholder(owner: Any, name: str, child: Any) -> Any:
    """Returns a placeholder for a list of slots of an optimizer that is not built.

    Before an optimizer has its slots, it is not known which slots are shards of one table in
    the checkpoint. So the placeholder takes their place. When the slots exist, `restore_slots`
    adds them to the placeholder, and TensorFlow's deferred restoration sets their values.

    Args:
        owner: The optimizer.
        name: Name of its child in the checkpoint.
        child: The child; None if `owner` has no child of that name yet.
    """
    if not (child is None or isinstance(child, (list, tuple))):
        return child
    if name not in _awaited(owner):
        _awaited(owner)[name] = _holder(child or [])
    return _awaited(owner)[name].list


def restore_slots(owner: Any) -> None:
    """Restores the slots of a newly built optimizer from the checkpoint that was read before.

    Raises:
        ValueError: If the checkpoint has a list of slots where the optimizer has none.
    """
    for name, holder in _awaited(owner).items():
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

    The rows are found by their name and shape. Several tables of this shape, of which one has
    the dtype of the layer, raise no error here.

    Args:
        weights: The weights of the layer.
        path: Path of the checkpoint.
        owner: Name of the layer, for the message.
    """
    for table in sharded_table.join_shards(weights):
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


def _awaited(owner: Any) -> dict[str, tf.Module]:
    return owner.__dict__.setdefault(_AWAITED, {})


def _has_shards(child: Any) -> bool:
    return isinstance(child, (list, tuple)) and any(map(sharded_table.is_shard, child))


def _slices(table: ShardedTable) -> Any:
    """Returns an object that TensorFlow saves in slices; the same object at each call."""
    if not hasattr(table, _SLICES):
        values = [shard.value for shard in table.shards]
        setattr(table, _SLICES, sharded_variable(values, table.name))
    return getattr(table, _SLICES)


def _whole_list(owner: Any, name: str, variables: list[keras.Variable]) -> Any:
    """Returns variables, with shards joined to tables. Every call returns the same list."""
    known = owner.__dict__.setdefault(_LISTS, {})
    key = name, *map(id, variables)
    if key not in known:
        known[key] = _holder(_as_saved(variables))
    return known[key].list


def _as_saved(variables: Sequence[keras.Variable]) -> list[Any]:
    return [
        _slices(one) if isinstance(one, ShardedTable) else one
        for one in sharded_table.join_shards(variables)
    ]


def _holder(children: Sequence[Any]) -> tf.Module:
    """Returns an object whose `list` TensorFlow can save."""
    holder = tf.Module()
    holder.list = list(children)
    return holder
