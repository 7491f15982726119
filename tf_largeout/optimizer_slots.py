"""The state of an optimizer in that of another one, whose model has other classes."""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import keras

from tf_largeout.class_changes import ClassChange

Changes: TypeAlias = Mapping[int, ClassChange]  # by `id` of the variable

_NO_SLOTS = ("_variables", "_trainable_variables")
_OVER_ROWS = "_c"  # of Adafactor: means over the rows of a matrix
_AVERAGES = "_model_variables_moving_average"


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
        old, new = one._variables, other._variables
        if one.built and len(old) != len(new):
            raise ValueError(
                f"Optimizer '{before.name}' has {len(old)} variables, and one made from its "
                f"config {len(new)}: layers were frozen, or freed, after it had begun. Compile "
                "the model again before `resize_classes`."
            )
        slots = _slots_of_classes(other, changed)
        # The first ones of an optimizer are there before it is built.
        for old_slot, slot in zip(old, new, strict=False):
            if id(slot) not in slots:
                change.copy(old_slot, slot)
                continue
            change_of_rows, new_rows = slots[id(slot)]
            change_of_rows.move_rows(old_slot, slot, new_rows)


def _parts(optimizer: keras.optimizers.Optimizer) -> Iterator[keras.optimizers.Optimizer]:
    """The optimizer and those inside of it."""
    yield optimizer
    inner = getattr(optimizer, "inner_optimizer", None)
    for part in [inner] if inner is not None else getattr(optimizer, "optimizers", []):
        yield from _parts(part)


def _slots_of_classes(
    optimizer: keras.optimizers.Optimizer, changed: Changes
) -> dict[int, tuple[ClassChange, keras.Variable]]:
    """By `id` of each slot with a row per class: its change, and where new rows come from."""
    found = {}
    variables = optimizer._trainable_variables
    for name, slots in vars(optimizer).items():
        if name in _NO_SLOTS or not isinstance(slots, list) or len(slots) != len(variables):
            continue
        for variable, slot in zip(variables, slots, strict=True):
            if id(variable) not in changed or not isinstance(slot, keras.Variable):
                continue
            if name != _OVER_ROWS and tuple(slot.shape[:1]) == tuple(variable.shape[:1]):
                source = variable if name == _AVERAGES else slot
                found[id(slot)] = changed[id(variable)], source
    return found
