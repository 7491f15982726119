"""What the output layer of a model says of a call that computes no logits."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout.keras_internals import mask_of
from tf_largeout.tags.output_tag import OutputTag, logits_left_out, tag_of


def output_tag(model: keras.Model, inputs: Any, asked_by: str) -> OutputTag:
    """The tag of the output of `model`, as `tag_and_mask` gives it."""
    return tag_and_mask(model, inputs, asked_by)[0]


def tag_and_mask(
    model: keras.Model, inputs: Any, asked_by: str
) -> tuple[OutputTag, tf.Tensor | None]:
    """The tag of the output of `model`, and the mask of its positions.

    The tag has the layer and the features that enter it. The mask, None if there is none, is
    that which an earlier layer, such as `Embedding(mask_zero=True)`, has given the output.

    Args:
        model: A model with one output.
        inputs: Those of the model.
        asked_by: Name of the function that needs it, for the error.

    Raises:
        ValueError: If the output of the model is not that of a `ClassOutput` layer.
    """
    with logits_left_out():
        outputs = model(inputs, training=False)
    try:
        tag = tag_of(outputs, asked_by, OutputTag)
    except ValueError as error:
        shapes = keras.tree.map_structure(lambda one: tuple(one.shape), outputs)
        raise ValueError(
            f"{asked_by} needs a model with one output, that of a LargeOutput, FactoredOutput "
            f"or HierarchicalOutput layer. Received: model '{model.name}', whose output of "
            f"shape {shapes} is another. Take the model without what follows that layer; the "
            "order of the classes is that of the logits."
        ) from error
    if tag is None:
        raise ValueError(f"Model '{model.name}' was traced for its shapes alone.")
    # After `load_weights` no step of this layer has told it the ranking of the loss.
    tag.layer.follow(getattr(model, "loss", None), replace=False)
    return tag, mask_of(outputs)
