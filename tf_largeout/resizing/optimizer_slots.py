"""`copy_state`: copies the state of an optimizer for a model with other classes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras

from tf_largeout import keras_internals
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.variables import sharded_table
from tf_largeout.variables.sharded_table import ShardedTable

Changes: TypeAlias = Mapping[int, ClassChange]  # by `id` of the variable


def copy_state(
    before: keras.optimizers.Optimizer,
    after: keras.optimizers.Optimizer,
    change: ClassChange,
    changed: Changes,
) -> None:
    """Copies iterations, learning rate and slots of an optimizer to another one.

    A Keras optimizer, also one of `tf_largeout`, has lists of slots. Slot i belongs to
    trainable variable i. The position in these lists, not the shape, determines which slots
    have rows of classes. New rows of slots have the initial values of a new optimizer. New rows
    of moving averages have the values of the weights.

    Args:
        before: The optimizer of the original model. If the model was never trained, it is not
            built.
        after: An optimizer made from the config of `before`. It is built on variables that
            already have their values.
        change: Which classes are kept.
        changed: The `ClassChange` of each trainable variable of `after` whose rows have moved.

    Raises:
        ValueError: If a slot has another shape and does not belong to one of these variables.
    """
    for one, other in zip(_parts(before), _parts(after), strict=True):
        old, new = map(keras_internals.own_variables, (one, other))
        if one.built and len(old) != len(new):
            raise ValueError(
                f"Optimizer '{before.name}' has {len(old)} variables, and an optimizer made "
                f"from its config has {len(new)}. `trainable` of a layer was changed after the "
                "first step. Compile the model again before `resize_classes`."
            )
        # An optimizer that is not built has only the first of its variables.
        olds = {id(slot): old_slot for old_slot, slot in zip(old, new, strict=False)}
        moved: set[int] = set()
        for slots in _slots_of_classes(other, changed):
            moved.update(map(id, slots.shards))
            if olds.keys() >= set(map(id, slots.shards)):
                _move([olds[id(slot)] for slot in slots.shards], slots, changed)
        for slot in new:
            if id(slot) in olds and id(slot) not in moved:
                change.copy(olds[id(slot)], slot)


def _parts(optimizer: keras.optimizers.Optimizer) -> Iterator[keras.optimizers.Optimizer]:
    """Yields the optimizer and those inside of it."""
    yield optimizer
    inner = getattr(optimizer, "inner_optimizer", None)
    for part in [inner] if inner is not None else getattr(optimizer, "optimizers", []):
        yield from _parts(part)


class _Slots(NamedTuple):
    """The slots of one kind that have a row per class.

    Attributes:
        variables: The variable with the class rows, or its shards.
        shards: The slot of each.
        are_averages: Whether the slots are moving averages of the variables.
    """

    variables: Sequence[keras.Variable]
    shards: Sequence[keras.Variable]
    are_averages: bool


def _slots_of_classes(
    optimizer: keras.optimizers.Optimizer, changed: Changes
) -> Iterator[_Slots]:
    """Yields all slots with a row per class."""
    variables = keras_internals.trainable_variables(optimizer)
    for slots, are_averages in keras_internals.slot_lists(optimizer):
        by_variable = {
            id(variable): slot
            for variable, slot in zip(variables, slots, strict=True)
            if id(variable) in changed and _has_its_rows(slot, variable)
        }
        for variable in variables:
            if id(variable) not in by_variable:
                continue
            table = sharded_table.table_of(variable)
            shards = [variable] if table is None else table.shards
            if not by_variable.keys() >= set(map(id, shards)):
                raise ValueError(
                    f"Optimizer '{optimizer.name}' must train all shards of the classes. "
                    f"Received: an optimizer that trains some of "
                    f"{[shard.path for shard in shards]}. Compile the model with one optimizer "
                    "for all of them before `resize_classes`."
                )
            if variable is shards[0]:
                slots_of_shards = [by_variable[id(shard)] for shard in shards]
                yield _Slots(shards, slots_of_shards, are_averages)


def _has_its_rows(slot: Any, variable: keras.Variable) -> bool:
    if not isinstance(slot, keras.Variable):
        return False
    return tuple(slot.shape[:1]) == tuple(variable.shape[:1])


def _move(before: Sequence[keras.Variable], slots: _Slots, changed: Changes) -> None:
    """Copies the rows of slots; new rows keep the values of a new optimizer."""
    change = changed[id(slots.variables[0])]
    if len(slots.shards) == 1:
        new_rows = slots.variables[0] if slots.are_averages else None
        change.move_rows(before[0], slots.shards[0], new_rows)
        return
    if slots.are_averages:
        for variable, slot in zip(slots.variables, slots.shards, strict=True):
            slot.assign(variable)
    after = ShardedTable("slots", slots.shards)
    after.take_rows(ShardedTable("slots", before), change.kept)
