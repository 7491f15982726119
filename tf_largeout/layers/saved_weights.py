"""The weights of a layer in a file, by name, so that its sampler can be another one later."""

import logging
import re
from collections.abc import Mapping, MutableMapping
from typing import Any

import keras

from tf_largeout.types import Shape
from tf_largeout.variables import sharded_table
from tf_largeout.variables.sharded_table import ShardedTable

_OF_SHARD = re.compile(r"_\d+_of_\d+$")  # as `ClassShard.name_of` has it


def save(layer: Any, store: MutableMapping[str, Any]) -> None:
    """Puts the weights of `layer` into `store`, which Keras writes to a file."""
    for name, weight in _own(layer).items():
        store[name] = weight.numpy() if isinstance(weight, ShardedTable) else weight


def load(layer: Any, store: Mapping[str, Any]) -> None:
    """Takes the weights of `layer` from `store`, all or none.

    The state of the sampler stays as it is where the file has that of another sampler. What a
    sampler keeps of the rows of one shard is made anew from them in the next step that
    searches, where the file has another number of shards.

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
    taken = needed.keys() | _taken_state(layer, needed_state, found_state)
    for name, weight in weights.items():
        if name in taken:
            weight.assign(values[name])


def is_of_sampler(name: str) -> bool:
    """Whether a weight of that name holds state of a sampler."""
    return name == "seed_state" or name.startswith("sampler_")


def _own(layer: Any) -> dict[str, keras.Variable | ShardedTable]:
    """The weights of the layer by name, without those that a tied layer saves.

    Shards are one table, so that a file does not depend on their number.
    """
    tied = set() if layer.tied_layer is None else set(map(id, layer.tied_layer.weights))
    own = sharded_table.whole(weight for weight in layer.weights if id(weight) not in tied)
    # A table that was given as such may have any name.
    return {"embeddings" if w is layer.embeddings else w.name: w for w in own}


def _shapes(arrays: Mapping[str, Any]) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """The shapes of a layer's own weights by name, and of those of its sampler."""
    own: dict[str, Shape] = {}
    state: dict[str, Shape] = {}
    for name, array in arrays.items():
        (state if is_of_sampler(name) else own)[name] = tuple(array.shape)
    return own, state


def _taken_state(
    layer: Any, needed: Mapping[str, Shape], found: Mapping[str, Shape]
) -> set[str]:
    """Which state of the sampler is taken from a file; logs what starts anew."""
    if needed == found:
        return set(needed)
    if layer.sampler is None:
        return set()
    name, log = type(layer.sampler).__name__, logging.getLogger("tf_largeout").warning
    searched = {_whole_name(one) for one in (*needed, *found) if _OF_SHARD.search(one)}
    others, in_file = (
        {one: shape for one, shape in state.items() if _whole_name(one) not in searched}
        for state in (needed, found)
    )
    if searched and others == in_file:
        log(
            "The file has another number of shards than layer '%s', whose %s fits what it "
            "searches in anew.",
            layer.name,
            name,
        )
        return set(others)
    log(
        "The file has the state of another sampler than the %s of layer '%s', which starts "
        "anew.",
        name,
        layer.name,
    )
    return set()


def _whole_name(name: str) -> str:
    """The name of a weight of a shard without its number."""
    return _OF_SHARD.sub("", name)
