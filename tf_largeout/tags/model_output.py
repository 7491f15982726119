"""The tag of a model's output, from a call that computes no logits."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout.keras_internals import mask_of
from tf_largeout.tags.output_tag import OutputTag, logits_left_out, tag_of


def compiled_loss(model: keras.Model) -> Any:
    """Returns the loss that a model with one output is compiled with, or None.

    `model.loss` is what `compile` received: a loss or its name, or a list or dict of them.
    """
    loss = getattr(model, "loss", None)
    if isinstance(loss, (list, tuple, dict)) and len(loss) == 1:
        (loss,) = loss.values() if isinstance(loss, dict) else loss
    return keras.losses.get(loss) if isinstance(loss, str) else loss


def require_model(model: Any, asked_by: str) -> None:
    """Raises a ValueError if `model` is not a `keras.Model`.

    Args:
        model: The argument.
        asked_by: Name of the function that needs it, for the error.
    """
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"{asked_by} needs a keras.Model. Received: model={model!r} (of type "
            f"{type(model).__name__})."
        )


def output_tag(model: keras.Model, inputs: Any, asked_by: str) -> OutputTag:
    """Returns the tag of the output of `model`, as `tag_and_mask`."""
    return tag_and_mask(model, inputs, asked_by)[0]


def tag_and_mask(
    model: keras.Model, inputs: Any, asked_by: str
) -> tuple[OutputTag, tf.Tensor | None]:
    """Returns the tag of the output of `model`, and the mask of its positions.

    The tag has the output layer and its input features. The mask comes from an earlier layer,
    such as `Embedding(mask_zero=True)`; None if there is no mask.

    Args:
        model: A model with one output.
        inputs: The inputs of the model.
        asked_by: Name of the function that needs it, for the error.

    Raises:
        ValueError: If the output of the model is not the output of a `ClassOutput` layer.
    """
    with logits_left_out():
        outputs = model(inputs, training=False)
    num_outputs = len(keras.tree.flatten(outputs))
    if num_outputs != 1:
        raise ValueError(
            f"{asked_by} needs a model with one output, which must come from a LargeOutput, "
            "FactoredOutput or HierarchicalOutput layer. Received: model "
            f"'{model.name}' with {num_outputs} outputs. Make a model of one of them, with the "
            "same layers: keras.Model(model.inputs, model.outputs[0])."
        )
    try:
        tag = tag_of(outputs, asked_by, OutputTag)
    except ValueError as error:
        shapes = keras.tree.map_structure(lambda one: tuple(one.shape), outputs)
        raise ValueError(
            f"{asked_by} needs a model with one output, which must come from a LargeOutput, "
            "FactoredOutput or HierarchicalOutput layer. Received: model "
            f"'{model.name}', with an output of shape {shapes} from another layer. Remove the "
            "layers after the output layer; a softmax does not change the order of the classes."
        ) from error
    if tag is None:
        raise ValueError(f"Model '{model.name}' was traced only for its shapes.")
    # After `load_weights`, the layer does not know the loss yet, and so not its ranking.
    tag.layer.follow(compiled_loss(model), replace=False)
    return tag, mask_of(outputs)
