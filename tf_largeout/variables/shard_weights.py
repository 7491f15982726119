"""Weights in shards: one weight per range of rows, on the server of the shard."""

import contextlib
import logging
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.distribute import cluster
from tf_largeout.types import Initializer
from tf_largeout.variables import sharded_table
from tf_largeout.variables.part_initializer import PartInitializer

_log = logging.getLogger("tf_largeout")


def require_placement(layer: str, num_shards: int) -> None:
    """Raises a ValueError if shards cannot be placed on their servers here.

    This is the case under a `tf.distribute` strategy, and in a function if servers are
    connected.
    """
    if tf.distribute.has_strategy():
        raise ValueError(
            f"Layer '{layer}' has num_shards={num_shards} and is built under "
            f"{type(tf.distribute.get_strategy()).__name__}, which places variables itself. "
            "Build the model outside of `strategy.scope()`, or use num_shards=1."
        )
    if cluster.addresses() and not tf.executing_eagerly():
        raise ValueError(
            f"Layer '{layer}' has num_shards={num_shards} on other machines and is built in "
            "`fit` or in another function, where variables cannot be placed on machines. Build "
            "the model before: give it a `keras.Input`, or call it on a batch."
        )


def add_shards(
    layer: Any,
    name: str,
    shape: tuple[int, ...],
    initializer: Initializer,
    argument: str,
    rows_dtype: str | None = None,
) -> list[keras.Variable]:
    """Adds the weights of one table to a layer, one per shard.

    Args:
        layer: A layer with `num_shards` and `add_class_weight`.
        name: Name of the table. The name of each weight ends with the number of its shard.
        shape: Shape of the table.
        initializer: Initializer of all rows, which a `PartInitializer` must support.
        argument: Name of the layer's argument with the initializer, for messages.
        rows_dtype: That of `add_class_weight`.

    Raises:
        ValueError: If the initializer cannot be evaluated per shard.
    """
    shards = []
    for number, (first, end) in enumerate(sharded_table.bounds(shape[0], layer.num_shards)):
        part = PartInitializer(initializer, shape, first, argument)
        _log.info(
            "Layer '%s', %s: creating rows %d to %d of %d on %s.",
            layer.name,
            name,
            first,
            end - 1,
            shape[0],
            cluster.address_of(number) or "this machine",
        )
        with _device_scope(number):
            part_shape = (end - first, *shape[1:])
            weight = layer.add_class_weight(f"{name}_{number}", part_shape, part, rows_dtype)
        setattr(layer, f"{name}_{number}", weight)  # checkpoints save attributes
        shards.append(weight)
    sharded_table.create_table(name, shards)
    return shards


def _device_scope(shard: int) -> contextlib.AbstractContextManager[None]:
    """Returns the device scope of the server that stores a shard."""
    device = cluster.device_of(shard)
    return contextlib.nullcontext() if device is None else tf.device(device)
