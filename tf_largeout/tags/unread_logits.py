"""`are_unread`: whether the losses and metrics of a model leave the logits alone."""

from typing import Any

import keras

from tf_largeout import keras_internals
from tf_largeout.tags.compiled_parts import outputs_of, part_of

_PACKAGE = "tf_largeout."


def are_unread(layer: Any) -> bool:
    """Returns whether nothing reads the logits of an output layer in the current step of `fit`.

    This is known if the layer is an output of the model that is trained, no other layer takes
    the output, all its losses and metrics are from tf_largeout, so they use its tag, and the
    model class does not override `train_step`. In any other case, the answer is False.

    Args:
        layer: The output layer, called in a step.
    """
    model = keras_internals.training_model()
    if model is None or not keras_internals.has_standard_step(model):
        return False
    places = list(outputs_of(layer, model))
    if len(places) != 1 or keras_internals.is_input_of_a_layer(layer):
        return False
    parts = [getattr(model, "loss", None), *keras_internals.compiled_metrics(model)]
    readers = [
        one for part in parts for one in keras.tree.flatten(part_of(part, model, *places))
    ]
    return all(one is None or _uses_tags(one) for one in readers)


def _uses_tags(reader: Any) -> bool:
    """Returns whether an object or its name belongs to a loss or metric of tf_largeout."""
    if isinstance(reader, str):
        tables = (keras.losses.get, keras.metrics.get)
        found = [keras_internals.compile_names(get).get(reader) for get in tables]
        kind = next((one for one in found if one is not None), None)
    else:
        kind = type(reader)
    return kind is not None and any(
        base.__module__.startswith(_PACKAGE) for base in kind.__mro__
    )
