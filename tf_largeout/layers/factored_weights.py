"""The weights of a `FactoredOutput`."""

from typing import Any

import keras
import numpy as np

from tf_largeout.classes.factored_update import gram_of, total_of
from tf_largeout.layers.class_output import ClassOutput
from tf_largeout.types import InitializerLike, Shape

# Places for folds: few enough that they take less than a percent of the memory of V, and that
# it takes no time to look through them.
_CLASSES_OF_A_FOLD, _LEAST_FOLDS, _MOST_FOLDS = 2048, 16, 1024
_WEIGHTS_OF_FOLDS = 2


def add_float64(
    layer: ClassOutput, name: str, shape: Shape, initializer: InitializerLike
) -> keras.Variable:
    """Adds a weight that no gradient trains."""
    return layer.add_class_weight(name, shape, initializer, dtype="float64", trainable=False)


def add_factors(
    layer: ClassOutput, width: int, initial_rows: InitializerLike
) -> dict[str, keras.Variable]:
    """Adds what steps write of a `FactoredState`.

    Args:
        layer: The layer.
        width: Of a row of V.
        initial_rows: Initializer of `[num_classes, width]`.
    """
    vectors = layer.add_class_weight(
        "vectors", (layer.num_classes, width), initial_rows, trainable=False
    )
    return {
        "vectors": vectors,
        "mixing": add_float64(layer, "mixing", (width, width), "identity"),
        "inverse": add_float64(layer, "inverse", (width, width), "identity"),
        "offset": add_float64(layer, "offset", (width,), "zeros"),
        "total": add_float64(layer, "total", (width,), total_of(vectors)),
        "gram": add_float64(layer, "gram", (width, width), gram_of(vectors)),
        "steps": layer.add_class_weight("steps", (), "zeros", dtype="int64", trainable=False),
    }


def add_folds(layer: ClassOutput, width: int) -> dict[str, keras.Variable]:
    """Adds the rest, what a step leaves for rows that it does not meet: the last weights."""
    places = min(max(layer.num_classes // _CLASSES_OF_A_FOLD, _LEAST_FOLDS), _MOST_FOLDS)
    seen = layer.add_class_weight(
        "seen", (layer.num_classes,), "zeros", dtype="uint32", trainable=False
    )
    folds = add_float64(layer, "folds", (places + 1, width + 1), "zeros")
    return {"folds": folds, "seen": seen}


def with_folds(store: Any, weights: list[keras.Variable]) -> Any:
    """What `load_own_variables` takes, with no folds where the file is older than they are.

    Args:
        store: What it was given.
        weights: All of the layer.
    """
    first = len(weights) - _WEIGHTS_OF_FOLDS
    if len(store.keys()) != first:
        return store
    none = {
        str(i): np.zeros(weights[i].shape, weights[i].dtype) for i in range(first, len(weights))
    }
    return {key: store[key] for key in store.keys()} | none
