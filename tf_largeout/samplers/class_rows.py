"""What search structures need from a layer: its class rows, and the seed of the run."""

from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.ops import devices
from tf_largeout.samplers.sampler import ClassLayer
from tf_largeout.variables.replicas import local_variable

_One = TypeVar("_One")
_Sharded = TypeVar("_Sharded")


def structure_over(
    matrix: ClassScorer,
    one: Callable[..., _One],
    sharded: Callable[..., _Sharded],
    *arguments: Any,
) -> _One | _Sharded:
    """Creates a search structure over the class rows.

    Args:
        matrix: The classes.
        one: The class of structures over a single variable.
        sharded: The class of structures over shards, which takes the shards first.
        *arguments: The other arguments of both.
    """
    shards = matrix.shards()
    return one(*arguments) if len(shards) == 1 else sharded(shards, *arguments)


def rows_of(matrix: ClassScorer) -> tuple[Any, Any]:
    """Returns the class rows in the form that a structure of `structure_over` takes.

    Returns:
        `(embeddings, bias)`: the `tf.Variable`s on this replica, and None without biases; for
        classes in shards, tuples of these with an entry per shard.
    """
    variables = [shard.matrix.variables() for shard in matrix.shards()]
    if len(variables) == 1:
        return variables[0]
    embeddings, bias = zip(*variables, strict=True)
    return embeddings, bias


def seed_of_run(layer: ClassLayer) -> tf.Tensor:
    """Returns the seed that the draws of the layer start from, int64 `[2]`."""
    first = local_variable(layer.seed_state).read_value()[0]
    with devices.host_scope(layer.seed_state):
        return tf.stack([first, 0])
