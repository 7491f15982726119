"""A model made anew from the config of another one, whose output layer has other classes."""

import base64
import contextlib
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import numpy as np

from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.keras_internals import all_layers
from tf_largeout.layers import ClassOutput
from tf_largeout.metrics import PropensityScoredPrecisionAtK
from tf_largeout.types import Config


class ModelCopy(NamedTuple):
    """A model made from a config, its weights new.

    Attributes:
        model: The model, not compiled.
        head: Its class output layer.
        compile_config: What it is to be compiled from; empty if the other one was not compiled.
    """

    model: keras.Model
    head: ClassOutput
    compile_config: Config


def class_output(model: keras.Model) -> ClassOutput:
    """The one layer of a model, or of models and layers inside of it, that has the classes.

    Raises:
        ValueError: If there is none, or several.
    """
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"`model` must be a keras.Model. Received: {model!r} (of type "
            f"{type(model).__name__})."
        )
    heads = [one for one in all_layers(model) if isinstance(one, ClassOutput)]
    if len(heads) == 1:
        return heads[0]
    names = ", ".join(f"'{head.name}'" for head in heads) or "none"
    raise ValueError(
        "`resize_classes` takes a model with one class output layer: a `LargeOutput`, "
        f"`FactoredOutput` or `HierarchicalOutput`. Received: model '{model.name}', which has "
        f"{len(heads)} ({names}). Resize the models before they are joined."
    )


def copy_of(model: keras.Model, head: ClassOutput, change: ClassChange) -> ModelCopy:
    """The model from its config, in which `head` and what it is tied to have other classes.

    Args:
        model: A model that is built; it stays as it is.
        head: Its class output layer.
        change: The `ClassChange`.

    Raises:
        ValueError: If the config does not give such a model, or its sampler cannot draw from
            so many classes.
    """
    with _attributes(head.changed_attributes(change)):
        config = keras.saving.serialize_keras_object(model)
    _leave_building_to_models(config)
    compile_config = config.pop("compile_config", None) or {}
    if compile_config:
        _require_compile_config(model)
        _change_counts(compile_config, change)
    copy = _made(config, model, change)
    new_head = class_output(copy)
    if new_head.num_classes != change.num_classes:
        raise ValueError(
            f"Model '{model.name}' of class {type(model).__name__}, made from its config, has "
            f"{new_head.num_classes} classes, not {change.num_classes}. Let its `get_config` "
            f"say their number by the `num_classes` of layer '{head.name}', not by a number of "
            "the model's own, or hold the layer itself (keras.saving.serialize_keras_object)."
        )
    if not new_head.built:
        raise ValueError(
            f"Model '{model.name}' of class {type(model).__name__} is not built when made from "
            "its config. Write `build_from_config`, as for `.keras` files."
        )
    return ModelCopy(copy, new_head, compile_config)


def _made(config: Config, model: keras.Model, change: ClassChange) -> keras.Model:
    custom = {keras.saving.get_registered_name(one): one for one in _own_classes(model)}
    try:
        return keras.saving.deserialize_keras_object(config, custom, safe_mode=False)
    except ValueError as error:
        raise ValueError(
            f"Model '{model.name}' cannot be made from its config with {change.num_classes} "
            f"classes: {error} Where its sampler is what cannot be, load the weights into a "
            "model with another one first (`load_weights`), and resize that."
        ) from error


@contextlib.contextmanager
def _attributes(values: list[tuple[Any, str, int]]) -> Iterator[None]:
    """Objects have other attributes inside: configs are made of them, wherever they stand."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in values]
    try:
        for owner, name, value in values:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def _leave_building_to_models(config: Config) -> None:
    """Has layers built where the model calls them, with the paths that their variables had.

    An optimizer may go by the paths; layers that are built before have shorter ones.
    """
    if config.get("class_name") not in ("Sequential", "Functional"):
        return
    for layer in config["config"]["layers"]:
        layer.pop("build_config", None)
        _leave_building_to_models(layer)


def _own_classes(model: keras.Model) -> set[type]:
    """Classes of layers that Keras does not know by their names."""
    classes = {type(layer) for layer in all_layers(model)}
    return {one for one in classes if not one.__module__.startswith("keras.")}


def _require_compile_config(model: keras.Model) -> None:
    cls = type(model)
    if (
        cls.compile is not keras.Model.compile
        and cls.compile_from_config is keras.Model.compile_from_config
    ):
        raise ValueError(
            f"{cls.__name__} has a `compile` of its own, so nobody else can compile a copy of "
            f"model '{model.name}'. Write `get_compile_config` and `compile_from_config` too, "
            "as for `.keras` files."
        )


def _change_counts(config: Any, change: ClassChange) -> None:
    """Moves the counts of classes in the configs of metrics; new classes have none."""
    if isinstance(config, list | tuple):
        for part in config:
            _change_counts(part, change)
    if not isinstance(config, dict):
        return
    for part in config.values():
        _change_counts(part, change)
    name = keras.saving.get_registered_name(PropensityScoredPrecisionAtK)
    if config.get("registered_name") == name:
        packed = zlib.decompress(base64.b64decode(config["config"]["counts"]))
        counts = change.moved(np.frombuffer(packed, "<i8"), 0)
        metric = PropensityScoredPrecisionAtK(**{**config["config"], "counts": counts})
        config["config"] = keras.saving.serialize_keras_object(metric)["config"]
