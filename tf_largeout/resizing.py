"""`resize_classes`: a trained model with more, fewer or other classes."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras
import tensorflow as tf

from tf_largeout import keras_internals
from tf_largeout.arguments import pack, unpack
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.layers import ClassOutput
from tf_largeout.types import Config, InitializerLike, TensorLike
from tf_largeout.variables import class_rows, initializers
from tf_largeout.variables.class_rows import ShardedTable

_Changes: TypeAlias = Mapping[int, ClassChange]  # by `id` of the variable


def resize_classes(
    model: keras.Model,
    num_classes: int,
    kept: TensorLike | None = None,
    initializer: InitializerLike | TensorLike | None = None,
    features: Any = None,
) -> keras.Model:
    """Returns a copy of a trained model with other classes.

    New class i below `len(kept)` is the old class `kept[i]`. It keeps its row, bias, optimizer
    slots and label counts, and training continues as if the class had always had the id i. All
    other classes are new. The copy has the compile arguments, iterations, learning rate and
    random states of `model`. `model` itself does not change. If the classes are the same,
    training the copy is bit-identical to training `model`.

    New classes get rows from `initializer`, biases from the initializer of the layer, and the
    slots of a new optimizer. Samplers that draw by frequency give them a count of 0; call
    `adapt` to set other counts. The next step rebuilds the search structures of samplers,
    unless the classes are the same. In a `HierarchicalOutput` new classes are assigned to the
    smallest clusters, and empty clusters are removed. A tied table (`embeddings=`) is resized
    too, so the ids at the input change as well. If an `ItemTower` computes the rows, new
    classes need `features`. The encoder and the free rows are kept, and new free rows start at
    0. A sharded layer keeps its number of shards.
    Rows and slots are copied from server to server, not through this process.

    ```python
    model = keras.Sequential([keras.Input([16]), tflo.layers.LargeOutput(1_000)])
    model.compile(tflo.optimizers.LazyAdam(3e-3), tflo.losses.SoftmaxLoss())
    model.fit(np.zeros([8, 16]), np.arange(8), verbose=0)
    grown = tflo.resize_classes(model, 1_200)
    without_first = tflo.resize_classes(model, 999, kept=np.arange(1, 1_000))
    ```

    Args:
        model: A built `Sequential`, functional or subclassed model with one `LargeOutput` or
            other output layer of this library, at any depth. The copy is made from its config,
            which must be complete, as for `.keras` files.
        num_classes: Number of classes of the copy, from 1 to 2^31 - 2.
        kept: Old ids in their new order, each at most once. By default all ids below
            `num_classes`, unchanged.
        initializer: Rows of the new classes: a Keras initializer, or an array
            `[num_classes - len(kept), dim]`, such as embeddings of their texts. By default the
            initializer of the layer. If the layer was initialized with an array, the default
            initializer of its class. A layer with an `ItemTower` takes `features` instead.
        features: Features of the new classes, for a layer with an `ItemTower`: arrays
            `[num_classes - len(kept), ...]` in the structure of the tower's features.

    Returns:
        The new model, compiled if `model` is.

    Raises:
        ValueError: If an argument is out of range or does not fit the layer; or if the model is
            not built, does not have exactly one class output layer, or cannot be made from its
            config with this number of classes.
    """
    head = _class_output(model)
    if not head.built:
        raise ValueError(
            f"Layer '{head.name}' of model '{model.name}' is not built, so it has no classes "
            "to keep. Call the model on data first, or make a new model."
        )
    change = ClassChange(head.num_classes, num_classes, kept, features)
    _check_source_of_rows(head, initializer, features)
    with model.distribute_strategy.scope():
        new_rows = _new_rows(initializer, change.num_new, head.class_matrix.dim)
        copy, new_head, compile_config = _copy_of(model, head, change)
        _copy_others(model, copy, new_head, change)
        changed = new_head.take_classes(head, change, new_rows)
        if compile_config:
            copy.compile_from_config(compile_config)
            by_variable = {id(variable): of_rows for variable, of_rows in changed}
            _copy_state(model.optimizer, copy.optimizer, change, by_variable)
    return copy


def _check_source_of_rows(head: ClassOutput, initializer: Any, features: Any) -> None:
    has_tower = head.tower is not None
    if has_tower and initializer is not None:
        raise ValueError(
            f"An ItemTower computes the rows of layer '{head.name}' from features. Received: "
            "`initializer`. Pass `features` of the new classes instead."
        )
    if features is not None and not has_tower:
        raise ValueError(
            f"`features` is for a layer whose rows an ItemTower computes. Layer '{head.name}' "
            "has a table of rows. Pass the rows of the new classes as `initializer`."
        )


def _new_rows(
    initializer: InitializerLike | TensorLike | None, num_new: int, dim: int
) -> tf.Tensor | None:
    """Returns float32 `[num_new, dim]`, the rows of the new classes; None for default rows."""
    if initializer is None:
        return None
    chosen = initializers.get("initializer", initializer, keras.initializers.Zeros())
    shape = (num_new, dim)
    if isinstance(chosen, initializers.ArrayInitializer) and chosen.values.shape != shape:
        raise ValueError(
            "An array in `initializer` must have one row for each of the "
            f"{num_new} new classes, so its shape must be {shape}. Received: an array of shape "
            f"{chosen.values.shape} and dtype {chosen.values.dtype}."
        )
    return tf.cast(chosen(shape, dtype="float32"), tf.float32)


def _copy_others(
    model: keras.Model, copy: keras.Model, head: ClassOutput, change: ClassChange
) -> None:
    """Copies all variables except those of the class output layer and of layers tied to it."""
    of_head = set(map(id, head.variables))
    old, new = model.variables, copy.variables
    names = [[one.name for one in variables] for variables in (old, new)]
    if names[0] != names[1]:
        raise ValueError(
            f"Model '{model.name}' has the variables {names[0]}, but a model made from its "
            f"config has {names[1]}. Make the configs of its layers complete, or build the "
            "resized model in your code."
        )
    for before, after in zip(old, new, strict=True):
        if id(after) not in of_head:
            change.copy(before, after)


def _class_output(model: keras.Model) -> ClassOutput:
    """Returns the one class output layer of a model, at any depth."""
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"`model` must be a keras.Model. Received: {model!r} (of type "
            f"{type(model).__name__})."
        )
    heads = [one for one in keras_internals.all_layers(model) if isinstance(one, ClassOutput)]
    if len(heads) == 1:
        return heads[0]
    names = ", ".join(f"'{head.name}'" for head in heads) or "none"
    raise ValueError(
        "`resize_classes` takes a model with one class output layer: a `LargeOutput` "
        f"or another one of this library. Received: model '{model.name}', which has "
        f"{len(heads)} ({names}). Resize the models before you join them."
    )


def _copy_of(
    model: keras.Model, head: ClassOutput, change: ClassChange
) -> tuple[keras.Model, ClassOutput, Config]:
    """Makes a model from a config in which `head`, and layers tied to it, have other classes.

    The result is not compiled, and has initial weights. Also returns its class output layer,
    and the argument for `compile_from_config`, empty if the original model is not compiled.
    """
    with _attributes(head.changed_attributes(change)):
        config = keras.saving.serialize_keras_object(model)
    _leave_building_to_models(config)
    compile_config = config.pop("compile_config", None) or {}
    if compile_config:
        _require_compile_config(model)
        _change_metrics(compile_config, change)
    copy = _made(config, model, change)
    new_head = _class_output(copy)
    if new_head.num_classes != change.num_classes:
        raise ValueError(
            f"Model '{model.name}' of class {type(model).__name__}, made from its config, has "
            f"{new_head.num_classes} classes, not {change.num_classes}. In its `get_config`, "
            f"take the number of classes from the `num_classes` of layer '{head.name}', not "
            "from an attribute of the model, or store the config of the layer "
            "(keras.saving.serialize_keras_object)."
        )
    if not new_head.built:
        raise ValueError(
            f"Model '{model.name}' of class {type(model).__name__} is not built after it is "
            "made from its config. Define `build_from_config`, as for `.keras` files."
        )
    return copy, new_head, compile_config


def _made(config: Config, model: keras.Model, change: ClassChange) -> keras.Model:
    classes = {type(layer) for layer in keras_internals.all_layers(model)}
    custom = {
        keras.saving.get_registered_name(one): one
        for one in classes
        if not one.__module__.startswith("keras.")
    }
    try:
        return keras.saving.deserialize_keras_object(config, custom, safe_mode=False)
    except ValueError as error:
        raise ValueError(
            f"Model '{model.name}' cannot be made from its config with {change.num_classes} "
            f"classes: {error} If this is due to its sampler, load the weights into a model "
            "with another sampler (`load_weights`), and resize that model."
        ) from error


@contextlib.contextmanager
def _attributes(values: list[tuple[Any, str, int]]) -> Iterator[None]:
    """Context in which objects have other attributes, so that their configs contain these."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in values]
    try:
        for owner, name, value in values:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def _leave_building_to_models(config: Config) -> None:
    """Removes build configs: layers that are built before a call have shorter variable paths.

    An optimizer may depend on the paths of the original model.
    """
    if config.get("class_name") not in ("Sequential", "Functional"):
        return
    for layer in config["config"]["layers"]:
        tower = layer.get("config", {}).get("embeddings")  # maybe an `ItemTower`
        encoder = tower.get("config", {}).get("encoder") if isinstance(tower, dict) else None
        for one in (layer, encoder or {}):
            one.pop("build_config", None)
            _leave_building_to_models(one)


def _require_compile_config(model: keras.Model) -> None:
    cls = type(model)
    if (
        cls.compile is not keras.Model.compile
        and cls.compile_from_config is keras.Model.compile_from_config
    ):
        raise ValueError(
            f"{cls.__name__} overrides `compile`, so a copy of model '{model.name}' cannot be "
            "compiled. Override `get_compile_config` and `compile_from_config` too, as for "
            "`.keras` files."
        )


def _change_metrics(config: Any, change: ClassChange) -> None:
    """Changes the classes in the configs of metrics; counts of new classes are 0."""
    if isinstance(config, list | tuple):
        for part in config:
            _change_metrics(part, change)
    if not isinstance(config, dict):
        return
    for part in config.values():
        _change_metrics(part, change)
    if str(config.get("registered_name")).startswith("tf_largeout>"):
        given = config["config"]
        if "num_classes" in given:
            given["num_classes"] = change.num_classes
        if "counts" in given:
            given["counts"] = pack(change.moved(unpack(given["counts"], "<i8"), 0))


def _copy_state(
    before: keras.optimizers.Optimizer,
    after: keras.optimizers.Optimizer,
    change: ClassChange,
    changed: _Changes,
) -> None:
    """Copies iterations, learning rate and slots of an optimizer to another one.

    The position in the lists of slots, not the shape, determines which slots have rows of
    classes. New rows of slots have the initial values of a new optimizer, and those of moving
    averages the values of the weights. `before` is not built if the original model was never
    trained. `after` is built on variables that already have their values.
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
        for slot in new:
            if isinstance(slot, keras_internals.SlotOnDemand) and id(slot) in olds:
                if olds[id(slot)].shape[0]:
                    slot.create_rows()
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
    """The slots of one kind that have a row per class."""

    variables: Sequence[keras.Variable]  # the variable with the class rows, or its shards
    shards: Sequence[keras.Variable]  # the slot of each
    are_averages: bool  # whether the slots are moving averages of the variables


def _slots_of_classes(
    optimizer: keras.optimizers.Optimizer, changed: _Changes
) -> Iterator[_Slots]:
    """Yields all slots with a row per class."""
    variables = keras_internals.trainable_variables(optimizer)
    for slots, are_averages in keras_internals.slot_lists(optimizer):
        by_variable = {
            id(variable): slot
            for variable, slot in zip(variables, slots, strict=True)
            if id(variable) in changed
            and isinstance(slot, keras.Variable)
            and tuple(slot.shape[:1]) == tuple(variable.shape[:1])
        }
        for variable in variables:
            if id(variable) not in by_variable:
                continue
            table = class_rows.table_of(variable)
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


def _move(before: Sequence[keras.Variable], slots: _Slots, changed: _Changes) -> None:
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
