"""`ShardedStructure`: the base of search structures over rows that are in shards."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import tensorflow as tf

from tf_largeout.variables.row_shard import RowShard

_Part = TypeVar("_Part")


class ShardedStructure(Generic[_Part]):
    """A search structure per shard of the rows, which together are used as one.

    The part of a shard is on the device that holds the shard's rows, and works there. Only
    queries, ids, scores and seeds cross the network.

    Subclasses have the methods of the structure over a single variable, with these
    differences: `embeddings` and `bias` are sequences with an entry per shard, where `bias` may
    have entries None; and `add_weight` has one more argument, `shard`, the `RowShard` that the
    weight belongs to.

    Args:
        shards: The shards, in the order of the rows.
        parts: The structure of each shard.
    """

    def __init__(self, shards: Sequence[RowShard], parts: Sequence[_Part]) -> None:
        self.shards, self.parts = list(shards), list(parts)

    def build(self, num_rows: int, *arguments: Any) -> None:
        """Creates the state of all parts.

        Args:
            num_rows: Number of rows of all shards.
            *arguments: The other arguments of `build` of a part; `add_weight` is the last.
        """
        *others, add_weight = arguments
        for shard, part in zip(self.shards, self.parts, strict=True):
            add = functools.partial(add_weight, shard=shard)
            part.build(shard.num_rows, *others, add)  # type: ignore[attr-defined]

    def each(self, function: Callable[..., Any], *arguments: Sequence[Any]) -> list[Any]:
        """Calls `function(shard, part, *arguments_of_shard)` on the device of each shard.

        Args:
            function: The function.
            *arguments: Sequences with an entry per shard.

        Returns:
            The results, in the order of the shards.
        """
        found = []
        for shard, *own in zip(self.shards, self.parts, *arguments, strict=True):
            with shard.place():
                found.append(function(shard, *own))
        return found


def on_each_shard(method: Callable[..., None]) -> Callable[..., None]:
    """Returns a method of a `ShardedStructure` that calls `method` of each part.

    Args:
        method: A method of the parts whose last arguments are `embeddings` and `bias`.
    """

    @functools.wraps(method)
    def call(sharded: ShardedStructure[Any], *arguments: Any) -> None:
        *others, embeddings, bias = arguments
        sharded.each(lambda _, part, *rows: method(part, *others, *rows), embeddings, bias)

    return call


def best_of_shards(
    found: Iterable[tuple[tf.Tensor, tf.Tensor]], k: int, is_sorted: bool = True
) -> tuple[tf.Tensor, tf.Tensor]:
    """Merges the best rows that each shard found.

    Args:
        found: `(scores, ids)` per shard, float32 and int64 `[B, m]`.
        k: How many rows to return.
        is_sorted: Whether the best come first.

    Returns:
        `(scores, ids)`: `[B, k]`.
    """
    scores, ids = (tf.concat(parts, axis=1) for parts in zip(*found, strict=True))
    best_scores, places = tf.math.top_k(scores, k, sorted=is_sorted)
    return best_scores, tf.gather(ids, places, batch_dims=1)
