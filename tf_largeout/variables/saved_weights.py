"""The weights of a layer in a file, by name, so that another sampler can load them."""

import logging
import re
from collections.abc import Mapping, MutableMapping
from typing import Any, TypeAlias

import keras

from tf_largeout.types import Shape
from tf_largeout.variables import table_pieces
from tf_largeout.variables.sharded_table import ShardedTable

NamedWeights: TypeAlias = Mapping[str, keras.Variable | ShardedTable]

_SHARD = re.compile(r"_\d+_of_\d+$")  # the ending that `RowShard.name_of` adds


def save(weights: NamedWeights, store: MutableMapping[str, Any]) -> None:
    """Puts weights into `store`, which Keras writes to a file."""
    for name, weight in weights.items():
        table_pieces.save(name, weight, store)


def load(
    weights: NamedWeights, store: Mapping[str, Any], layer: str, sampler: str | None
) -> None:
    """Sets weights to those in `store`: all of them, or none if they do not fit.

    The state of the sampler is left unchanged if the file has the state of another sampler. If
    the file has another number of shards, the search structures of the shards are left
    unchanged too; the next step that searches rebuilds them.

    Args:
        weights: The weights of a built layer.
        store: What `save` filled, read back.
        layer: Name of the layer, for messages.
        sampler: Class name of its sampler; None if it has none.

    Raises:
        ValueError: If the file does not have the same weights with the same shapes. Weights of
            the sampler may differ.
    """
    values = table_pieces.load(store)
    needed, needed_state = _shapes(weights)
    found, found_state = _shapes(values)
    if needed != found:
        widths = [{name: shape[1:] for name, shape in one.items()} for one in (needed, found)]
        raise ValueError(
            f"Layer '{layer}' has weights of the shapes: {needed}. The file has {found}. Build "
            "the layer as it was when they were saved, with `embeddings=` if it was tied. Only "
            "its sampler may differ."
            + " Then change the number of classes by `tf_largeout.resize_classes`."
            * (widths[0] == widths[1])
        )
    loaded = needed.keys() | _loaded_state(needed_state, found_state, layer, sampler)
    _report_conversion(weights, values, layer)
    for name, weight in weights.items():
        if name in loaded and isinstance(values[name], table_pieces.SavedTable):
            values[name].assign_to(weight)
        elif name in loaded:
            weight.assign(values[name])


def _report_conversion(weights: NamedWeights, values: Mapping[str, Any], layer: str) -> None:
    for name, weight in weights.items():
        if name.startswith("embeddings") and name in values:
            dtypes = str(values[name].dtype), str(weight.dtype)
            if dtypes[0] != dtypes[1]:
                logging.getLogger("tf_largeout").warning(
                    "The class rows of layer '%s' are %s in the file and %s in the layer. They "
                    "are converted%s.",
                    layer,
                    *dtypes,
                    " to the nearest number" if dtypes[1] == "bfloat16" else "",
                )


def is_of_sampler(name: str) -> bool:
    """Returns whether a weight of that name holds state of a sampler."""
    return name == "seed_state" or name.startswith("sampler_")


def _shapes(arrays: Mapping[str, Any]) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """Returns the shapes of the weights of the layer by name, and of those of its sampler."""
    of_layer: dict[str, Shape] = {}
    of_sampler: dict[str, Shape] = {}
    for name, array in arrays.items():
        (of_sampler if is_of_sampler(name) else of_layer)[name] = tuple(array.shape)
    return of_layer, of_sampler


def _loaded_state(
    needed: Mapping[str, Shape], found: Mapping[str, Shape], layer: str, sampler: str | None
) -> set[str]:
    """Returns the names of the sampler's weights that can be loaded; logs which cannot."""
    if needed == found:
        return set(needed)
    if sampler is None:
        return set()
    log = logging.getLogger("tf_largeout").warning
    sharded = {_without_shard(name) for name in (*needed, *found) if _SHARD.search(name)}
    others, others_in_file = (
        {name: shape for name, shape in state.items() if _without_shard(name) not in sharded}
        for state in (needed, found)
    )
    if sharded and others == others_in_file:
        log(
            "The file has another number of shards than layer '%s'. Its %s rebuilds its search "
            "structures in the next step that searches.",
            layer,
            sampler,
        )
        return set(others)
    log(
        "The file has the state of another sampler than the %s of layer '%s', which starts "
        "with a new state.",
        sampler,
        layer,
    )
    return set()


def _without_shard(name: str) -> str:
    """Returns the name of a weight without the number of its shard."""
    return _SHARD.sub("", name)
