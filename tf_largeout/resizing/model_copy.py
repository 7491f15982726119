"""Makes a model with other classes from the config of a model."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.keras_internals import all_layers
from tf_largeout.layers import ClassOutput
from tf_largeout.metrics import (
    AveragePopularityAtK,
    CatalogCoverageAtK,
    MacroRecallAtK,
    PropensityScoredPrecisionAtK,
)
from tf_largeout.types import Config

_METRICS_OF_CLASSES: tuple[type[keras.metrics.Metric], ...] = (
    AveragePopularityAtK,
    CatalogCoverageAtK,
    MacroRecallAtK,
    PropensityScoredPrecisionAtK,
)


def class_output(model: keras.Model) -> ClassOutput:
    """Returns the class output layer of a model, at any depth.

    Raises:
        ValueError: If the model does not have exactly one such layer.
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
        f"{len(heads)} ({names}). Resize the models before you join them."
    )


def copy_of(
    model: keras.Model, head: ClassOutput, change: ClassChange
) -> tuple[keras.Model, ClassOutput, Config]:
    """Makes a model from a config in which `head`, and layers tied to it, have other classes.

    Args:
        model: A built model. It is not changed.
        head: Its class output layer.
        change: Which classes are kept.

    Returns:
        `(model, head, compile_config)`: the copy with initial weights, not compiled; its class
        output layer; and the argument for `compile_from_config`, empty if the original model is
        not compiled.

    Raises:
        ValueError: If the model cannot be made from its config, or its sampler does not support
            that number of classes.
    """
    with _attributes(head.changed_attributes(change)):
        config = keras.saving.serialize_keras_object(model)
    _leave_building_to_models(config)
    compile_config = config.pop("compile_config", None) or {}
    if compile_config:
        _require_compile_config(model)
        _change_metrics(compile_config, change)
    copy = _made(config, model, change)
    new_head = class_output(copy)
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
    custom = {keras.saving.get_registered_name(one): one for one in _custom_classes(model)}
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
    """Removes build configs, so that layers are built when the model calls them.

    The paths of their variables are then those of the original model, which an optimizer may
    depend on. If layers are built before, the paths are shorter.
    """
    if config.get("class_name") not in ("Sequential", "Functional"):
        return
    for layer in config["config"]["layers"]:
        for one in (layer, _encoder_of_classes(layer)):
            one.pop("build_config", None)
            _leave_building_to_models(one)


def _encoder_of_classes(layer: Config) -> Config:
    """Returns the config of the encoder of an `ItemTower` in a layer's config; {} without."""
    tower = layer.get("config", {}).get("embeddings")
    encoder = tower.get("config", {}).get("encoder") if isinstance(tower, dict) else None
    return encoder or {}


def _custom_classes(model: keras.Model) -> set[type]:
    """Returns the classes of a model's layers that are not defined by Keras."""
    classes = {type(layer) for layer in all_layers(model)}
    return {one for one in classes if not one.__module__.startswith("keras.")}


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
    registered = config.get("registered_name")
    by_name = {keras.saving.get_registered_name(one): one for one in _METRICS_OF_CLASSES}
    if registered not in by_name:
        return
    metric = by_name[registered].from_config(config["config"])
    given: Config = {"num_classes": change.num_classes}
    if hasattr(metric, "counts"):
        given = {"counts": change.moved(metric.counts, 0)}
    resized = by_name[registered](**{**config["config"], **given})
    config["config"] = keras.saving.serialize_keras_object(resized)["config"]
