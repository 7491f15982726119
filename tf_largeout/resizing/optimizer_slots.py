"""The state of an optimizer in that of another one, whose model has other classes."""

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
    """Sets iterations, learning rate and slots of an optimizer to those of another.

    Keras's optimizers, and those of `tf_largeout`, keep slots in lists that go by the trainable
    variables: slot i belongs to variable i. By that, and not by shapes, it is known which slots
    have rows of classes. New rows start as those of a new optimizer; averages of the weights
    start at the weights.

    Args:
        before: The optimizer of the model before; not built if that was never trained.
        after: One made from its config, built on variables that have their values already.
        change: The `ClassChange`.
        changed: That of each trainable variable of `after` whose rows have moved.

    Raises:
        ValueError: If a slot has another shape and belongs to none of these.
    """
    for one, other in zip(_parts(before), _parts(after), strict=True):
        old, new = map(keras_internals.own_variables, (one, other))
        if one.built and len(old) != len(new):
            raise ValueError(
                f"Optimizer '{before.name}' has {len(old)} variables, and one made from its "
                f"config {len(new)}: layers were frozen, or freed, after it had begun. Compile "
                "the model again before `resize_classes`."
            )
        # The first ones of an optimizer are there before it is built.
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
    """The optimizer and those inside of it."""
    yield optimizer
    inner = getattr(optimizer, "inner_optimizer", None)
    for part in [inner] if inner is not None else getattr(optimizer, "optimizers", []):
        yield from _parts(part)


class _Slots(NamedTuple):
    """What an optimizer has of each class.

    Attributes:
        variables: The variables with the classes, one or, in shards, several.
        shards: The slot of each.
        are_averages: Whether they are averages of the variables.
    """

    variables: Sequence[keras.Variable]
    shards: Sequence[keras.Variable]
    are_averages: bool


def _slots_of_classes(
    optimizer: keras.optimizers.Optimizer, changed: Changes
) -> Iterator[_Slots]:
    """All slots with a row per class."""
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
            mates = [variable] if table is None else table.shards
            if not by_variable.keys() >= set(map(id, mates)):
                raise ValueError(
                    f"Optimizer '{optimizer.name}' trains some shards of the classes, and not "
                    f"all of {[mate.path for mate in mates]}. Compile the model with one "
                    "optimizer for all of them before `resize_classes`."
                )
            if variable is mates[0]:
                own = [by_variable[id(mate)] for mate in mates]
                yield _Slots(mates, own, are_averages)


def _has_its_rows(slot: Any, variable: keras.Variable) -> bool:
    if not isinstance(slot, keras.Variable):
        return False
    return tuple(slot.shape[:1]) == tuple(variable.shape[:1])


def _move(before: Sequence[keras.Variable], slots: _Slots, changed: Changes) -> None:
    """Sets slots to those of before; new rows are those of a new optimizer."""
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
