"""The weights of a layer whose classes are in shards."""

import contextlib
import logging
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.arguments import whole_number
from tf_largeout.classes.sharded_matrix import ShardedMatrix
from tf_largeout.distribute import cluster
from tf_largeout.layers.part_initializer import PartInitializer
from tf_largeout.samplers import Sampler
from tf_largeout.types import Initializer
from tf_largeout.variables import sharded_table

_log = logging.getLogger("tf_largeout")


def checked_count(num_shards: int, num_classes: int, is_tied: bool) -> int:
    """The argument `num_shards` of a layer.

    Raises:
        ValueError: If it is no integer from 1 to `num_classes`, or above 1 where the rows are
            those of another layer.
    """
    count = whole_number("num_shards", num_shards)
    if count > num_classes:
        raise ValueError(
            "`num_shards` must be at most the number of classes, so that each shard has one. "
            f"Received: num_shards={count}, num_classes={num_classes}."
        )
    if is_tied and count > 1:
        raise ValueError(
            "`embeddings` is the one table of another layer, which has no shards. Received: "
            f"num_shards={count}. Leave `embeddings` out, or take num_shards=1."
        )
    return count


def add_matrix(layer: Any, dim: int) -> ShardedMatrix:
    """Makes the rows and biases of a `LargeOutput`, a weight each a shard, where they belong.

    Args:
        layer: The layer; `num_shards` is above 1.
        dim: Width of a row.

    Raises:
        ValueError: If the layer cannot be built here and now, see `_require_placed`, its
            initializers give no parts, or its sampler takes no shards.
    """
    _require_placed(layer)
    _require_no_table(layer.sampler, layer.name)
    rows = _add_table(
        layer, "embeddings", (layer.num_classes, dim), layer.embeddings_initializer
    )
    biases = None
    if layer.use_bias:
        biases = _add_table(layer, "bias", (layer.num_classes,), layer.bias_initializer)
    return ShardedMatrix(rows, biases, layer.name)


def _require_no_table(sampler: Sampler | None, layer_name: str) -> None:
    """Raises a ValueError where a sampler reads all rows in one variable."""
    if sampler is None or not sampler.needs_one_table:
        return
    raise ValueError(
        f"{sampler.name_in_messages} of layer '{layer_name}' reads all rows in one variable "
        "(`needs_one_table`), and so cannot be taken with num_shards above 1. Take a sampler "
        "of `tf_largeout`, all of which draw from shards, or num_shards=1."
    )


def _require_placed(layer: Any) -> None:
    if tf.distribute.has_strategy():
        raise ValueError(
            f"Layer '{layer.name}' has num_shards={layer.num_shards}, and is built under "
            f"{type(tf.distribute.get_strategy()).__name__}, which places variables by itself. "
            "Build the model outside of `strategy.scope()`, or take num_shards=1."
        )
    if cluster.addresses() and not tf.executing_eagerly():
        raise ValueError(
            f"Layer '{layer.name}' has num_shards={layer.num_shards} on other machines, and is "
            "built inside of `fit` or of a function, where variables get no machine of their "
            "own. Build the model before: give it a `keras.Input`, or call it on a batch."
        )


def _add_table(
    layer: Any, name: str, shape: tuple[int, ...], initializer: Initializer
) -> list[keras.Variable]:
    shards = []
    argument = "embeddings_initializer" if name == "embeddings" else "bias_initializer"
    for number, (first, end) in enumerate(sharded_table.bounds(shape[0], layer.num_shards)):
        part = PartInitializer(initializer, shape, first, argument)
        _log.info(
            "Layer '%s', %s: making rows %d to %d of %d on %s.",
            layer.name,
            name,
            first,
            end - 1,
            shape[0],
            cluster.address_of(number) or "this machine",
        )
        with _place(number):
            weight = layer.add_class_weight(f"{name}_{number}", (end - first, *shape[1:]), part)
        setattr(layer, f"{name}_{number}", weight)  # what attributes hold, checkpoints have
        shards.append(weight)
    sharded_table.table(name, shards)
    return shards


def _place(number: int) -> contextlib.AbstractContextManager[None]:
    """The scope of the machine that has a shard."""
    device = cluster.device_of(number)
    return contextlib.nullcontext() if device is None else tf.device(device)
