"""Names and types of a model's inputs in the signatures of its export."""

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

# The other inputs of the signature `top_k`.
RESERVED = ("k", "exclude")
_AUTOMATIC = ("keras_tensor", "input_layer")  # names that Keras numbers across models


def input_specs(model: keras.Model) -> Any:
    """Returns a `tf.TensorSpec` for each input of `model`, in the structure of its call.

    A `tf.TensorSpec` is named like the input in the signature: by its `keras.Input` or its key.
    A single input without a name is called "features". Several inputs without names are called
    "features_0", "features_1", ... If mixed precision made the type of an input without a name
    float16 or bfloat16, the spec has float32, which the model casts.

    Args:
        model: A built model.

    Raises:
        ValueError: If the model is not built, an input is sparse or ragged, a name occurs
            twice, or a name is in `RESERVED`.
    """
    inputs = _inputs_of(model)
    tensors = keras.tree.flatten(inputs)
    names = _names(tensors)
    if isinstance(inputs, dict):  # Keras flattens it in the order of its keys
        names = [str(path[-1]) for path, _ in keras.tree.flatten_with_path(inputs)]
    _check_names(names, model.name)
    specs = [_spec(*pair, model.name) for pair in zip(tensors, names, strict=True)]
    return keras.tree.pack_sequence_as(inputs, specs)


def _inputs_of(model: keras.Model) -> Any:
    """Returns the symbolic inputs, in their structure."""
    if not model.built:
        raise ValueError(
            f"Model '{model.name}' is not built, so it has no weights to export. First call it "
            "on data, or start it with a keras.Input."
        )
    if getattr(model, "inputs", None):
        return model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    shapes = (model.get_build_config() or {}).get("input_shape")
    if isinstance(shapes, tuple) and all(isinstance(n, int | None) for n in shapes):
        return keras.KerasTensor(shapes, model.input_dtype, name=_AUTOMATIC[0])
    raise ValueError(
        f"The shapes and types of the inputs of model '{model.name}' are not known. Specify "
        "them with a model around it: inputs = keras.Input([16], name=...); export keras.Model("
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
            f"Each input of the signatures needs a unique name, and `top_k` already has the "
            f"inputs {RESERVED}. Received: model '{owner}' with inputs {list(names)}: {twice} "
            "would occur twice. Give them names: keras.Input(..., name=...)."
        )


def _spec(tensor: Any, name: str, owner: str) -> tf.TensorSpec:
    for kind in ("sparse", "ragged"):
        if getattr(tensor, kind, False):
            raise ValueError(
                f"Servers send dense tensors. Received: model '{owner}', whose input '{name}' "
                f"is {kind}. Put a model around it that converts padded ids to this input."
            )
    dtype = tensor.dtype
    if tensor.name.startswith(_AUTOMATIC) and dtype in ("float16", "bfloat16"):
        dtype = "float32"
    return tf.TensorSpec((None, *tensor.shape[1:]), dtype, name=name)
