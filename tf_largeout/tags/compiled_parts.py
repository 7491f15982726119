"""Which parts of what `compile` received belong to an output layer."""

from collections.abc import Iterator
from typing import Any

import keras

from tf_largeout import keras_internals


def outputs_of(layer: Any, model: keras.Model) -> Iterator[int]:
    """Yields the positions of those outputs of `model` that are direct outputs of `layer`."""
    for place, output in enumerate(getattr(model, "outputs", None) or []):
        if keras_internals.output_layer(output) is layer:
            yield place


def part_of(value: Any, model: keras.Model, place: int) -> Any:
    """Returns the part of a loss, or of metrics, that is for one output of a model.

    Args:
        value: The loss or the metrics, as `compile` received them.
        model: The model.
        place: Position of the output.
    """
    if isinstance(value, dict):
        return value.get(model.output_names[place])
    if isinstance(value, list | tuple) and len(model.outputs) > 1:
        return value[place] if place < len(value) else None
    return value
