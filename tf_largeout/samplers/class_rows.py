"""What search structures need from a layer: its class rows, and the seed of the run."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.ops import devices
from tf_largeout.samplers.sampler import ClassLayer
from tf_largeout.variables.replicas import local_variable
from tf_largeout.variables.row_shard import RowShard

_One = TypeVar("_One")
_Sharded = TypeVar("_Sharded")


def structure_over(
    matrix: ClassScorer,
    make: Callable[[], _One],
    sharded: Callable[[Sequence[RowShard], list[_One]], _Sharded],
) -> _One | _Sharded:
    """Creates a search structure over the class rows.

    Args:
        matrix: The classes.
        make: Makes the structure of a single variable, or of a shard.
        sharded: Makes one structure of those of several shards.
    """
    shards = matrix.shards()
    parts = [make() for _ in shards]
    return parts[0] if len(parts) == 1 else sharded(shards, parts)


def rows_of(matrix: ClassScorer) -> tuple[Any, Any]:
    """Returns the class rows in the form that a structure of `structure_over` takes.

    Returns:
        `(embeddings, bias)`: the `tf.Variable`s on this replica, and None without biases; for
        classes in shards, tuples of these with an entry per shard.
    """
    variables = [shard.variables() for shard in matrix.shards()]
    if len(variables) == 1:
        return variables[0]
    embeddings, bias = zip(*variables, strict=True)
    return embeddings, bias


def score_of(matrix: ClassScorer) -> Any:
    """Returns the function that scores class rows for a structure of `structure_over`.

    Returns:
        `ClassScorer.dots`; for classes in shards, a tuple with one per shard.
    """
    functions = tuple(shard.dots for shard in matrix.shards())
    return functions[0] if len(functions) == 1 else functions


def seed_of_run(layer: ClassLayer) -> tf.Tensor:
    """Returns the seed that the draws of the layer start from, int64 `[2]`."""
    first = local_variable(layer.seed_state).read_value()[0]
    with devices.host_scope(layer.seed_state):
        return tf.stack([first, 0])
