"""`ShardedStructure`: the base of search structures over rows that are in shards."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

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

    def each(self, function: Callable[..., Any], *arguments: Sequence[Any]) -> list[Any]:
        """Calls `function(shard, part, *arguments_of_shard)` on the device of each shard.

        Args:
            function: The function.
            *arguments: Sequences with an entry per shard.

        Returns:
            The results, in the order of the shards.
        """
        calls = zip(self.shards, self.parts, *arguments, strict=True)
        return [_placed(function, *call) for call in calls]


def _placed(function: Callable[..., Any], shard: RowShard, *arguments: Any) -> Any:
    with shard.place():
        return function(shard, *arguments)
