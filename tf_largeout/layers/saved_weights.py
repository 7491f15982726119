"""The weights of a layer in a file, by name, so that its sampler can be another one later."""

import logging
from collections.abc import Mapping, MutableMapping
from typing import Any

import keras

from tf_largeout import row_shards
from tf_largeout.row_shards import ShardedTable
from tf_largeout.types import Shape


def save(layer: Any, store: MutableMapping[str, Any]) -> None:
    """Puts the weights of `layer` into `store`, which Keras writes to a file."""
    for name, weight in _own(layer).items():
        store[name] = weight.numpy() if isinstance(weight, ShardedTable) else weight


def load(layer: Any, store: Mapping[str, Any]) -> None:
    """Takes the weights of `layer` from `store`, all or none.

    The state of the sampler stays as it is where the file has that of another sampler.

    Args:
        layer: A built layer.
        store: What `save` filled, read back.

    Raises:
        ValueError: If other weights, besides the sampler's, are in the file, or have another
            shape.
    """
    weights = _own(layer)
    values = {name: store[name] for name in store.keys()}
    needed, needed_state = _shapes(weights)
    found, found_state = _shapes(values)
    if needed != found:
        raise ValueError(
            f"Layer '{layer.name}' has weights of the shapes: {needed}. The file has {found}. "
            "Build the layer as it was when they were saved, tied (`embeddings=`) if it was: "
            "only its sampler can be another."
        )
    if needed_state != found_state:
        weights = {name: weights[name] for name in needed}
        if layer.sampler is not None:
            logging.getLogger("tf_largeout").warning(
                "The file has the state of another sampler than the %s of layer '%s', which "
                "starts anew.",
                type(layer.sampler).__name__,
                layer.name,
            )
    for name, weight in weights.items():
        weight.assign(values[name])


def is_of_sampler(name: str) -> bool:
    """Whether a weight of that name holds state of a sampler."""
    return name == "seed_state" or name.startswith("sampler_")


def _own(layer: Any) -> dict[str, keras.Variable | ShardedTable]:
    """The weights of the layer by name, without those that a tied layer saves.

    Shards are one table, so that a file does not depend on their number.
    """
    tied = set() if layer.tied_layer is None else set(map(id, layer.tied_layer.weights))
    own = row_shards.whole(weight for weight in layer.weights if id(weight) not in tied)
    # A table that was given as such may have any name.
    return {"embeddings" if w is layer.embeddings else w.name: w for w in own}


def _shapes(arrays: Mapping[str, Any]) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """The shapes of a layer's own weights by name, and of those of its sampler."""
    own: dict[str, Shape] = {}
    state: dict[str, Shape] = {}
    for name, array in arrays.items():
        (state if is_of_sampler(name) else own)[name] = tuple(array.shape)
    return own, state
