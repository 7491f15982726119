"""The inputs of a model, as the signatures of its export name and type them."""

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

# What else the signature `top_k` takes.
RESERVED = ("k", "exclude")
_AUTOMATIC = ("keras_tensor", "input_layer")  # names that Keras counts up from model to model


def input_specs(model: keras.Model) -> Any:
    """A `tf.TensorSpec` for each input of `model`, in the structure that it is called with.

    Each has the name that its signature gives it: that of its `keras.Input`, or its key;
    "features" for a single one without a name, "features_0", "features_1", ... for several.

    Args:
        model: A built model.

    Raises:
        ValueError: If it is not built, an input is sparse or ragged, or two, or one and an
            input of our own, have the same name.
    """
    inputs = _inputs_of(model)
    tensors = keras.tree.flatten(inputs)
    names = _names(tensors)
    if isinstance(inputs, dict):  # whose keys Keras goes through in their order
        names = [str(path[-1]) for path, _ in keras.tree.flatten_with_path(inputs)]
    _check_names(names, model.name)
    specs = [_spec(*pair, model.name) for pair in zip(tensors, names, strict=True)]
    return keras.tree.pack_sequence_as(inputs, specs)


def _inputs_of(model: keras.Model) -> Any:
    """The symbolic inputs, in their structure."""
    if not model.built:
        raise ValueError(
            f"Model '{model.name}' is not built, so it has no weights to export. Call it on "
            "data, or begin it with a keras.Input, first."
        )
    if getattr(model, "inputs", None):
        return model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    shapes = (model.get_build_config() or {}).get("input_shape")
    if isinstance(shapes, tuple) and all(isinstance(n, int | None) for n in shapes):
        return keras.KerasTensor(shapes, model.input_dtype, name="features")
    raise ValueError(
        f"The shapes and types of the inputs of model '{model.name}' are not known. Say them "
        "with a model around it: inputs = keras.Input([16], name=...); export keras.Model("
        "inputs, model(inputs))."
    )


def _names(tensors: list[Any]) -> list[str]:
    automatic = [one.name.startswith(_AUTOMATIC) for one in tensors]
    if len(tensors) == 1 and automatic[0]:
        return ["features"]
    return [
        f"features_{place}" if unnamed else one.name
        for place, (one, unnamed) in enumerate(zip(tensors, automatic, strict=True))
    ]


def _check_names(names: Iterable[str], owner: str) -> None:
    taken = [*names, *RESERVED]
    twice = sorted({name for name in taken if taken.count(name) > 1})
    if twice:
        raise ValueError(
            f"Each input of the signatures needs a name of its own; {RESERVED} are those of "
            f"`top_k`. Received: model '{owner}' with inputs {list(names)}: {twice} would "
            "be there twice. Give them names: keras.Input(..., name=...)."
        )


def _spec(tensor: Any, name: str, owner: str) -> tf.TensorSpec:
    for kind in ("sparse", "ragged"):
        if getattr(tensor, kind, False):
            raise ValueError(
                f"Servers send dense tensors. Received: model '{owner}', whose input '{name}' "
                f"is {kind}. Put a model around it that makes it from padded ids."
            )
    return tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype, name=name)
