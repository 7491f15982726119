"""`ShardedInvertedFile`: an inverted file per shard of the rows."""

import math
from typing import Any

import tensorflow as tf

from tf_largeout.search.inverted_file import InvertedFile, health_of
from tf_largeout.search.shard_distribution import ShardDistribution
from tf_largeout.search.sharded_structure import ShardedStructure, best_of_shards, on_each_shard
from tf_largeout.variables.row_shard import RowShard


class ShardedInvertedFile(ShardedStructure[InvertedFile]):
    """`InvertedFile` over rows in shards; see `ShardedStructure` for the arguments.

    With K shards, each shard has 1 / sqrt(K) of the lists that a single file would have, and
    searches `num_probes / sqrt(K)` of them. So the default number of lists is `4
    sqrt(num_rows)` per shard, and the number of rows that are scored in total stays the same.

    Args:
        shards: The shards.
        parts: The files, with the `num_lists` of a single file.
    """

    def build(self, num_rows: int, *arguments: Any) -> None:
        """Creates the state, see `InvertedFile.build`."""
        for file in self.parts:
            file.num_lists = file.num_lists and _per_shard(file.num_lists, len(self.parts))
        super().build(num_rows, *arguments)

    fit = on_each_shard(InvertedFile.fit)
    keep_up = on_each_shard(InvertedFile.keep_up)

    def search(
        self, queries: tf.Tensor, k: int, num_probes: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Like `InvertedFile.search`. `num_probes` is the number for one file over all rows."""
        num_probes = _per_shard(num_probes, len(self.shards))

        def search_shard(shard: RowShard, file: InvertedFile) -> tuple[tf.Tensor, tf.Tensor]:
            scores, ids = file.search(queries, k, num_probes)
            return scores, shard.to_global(ids)

        return best_of_shards(self.each(search_shard), k)

    def distribution(self, queries: tf.Tensor) -> ShardDistribution:
        """See `InvertedFile.distribution`."""
        parts = self.each(lambda _, file: file.distribution(queries))
        return ShardDistribution(self.shards, parts)

    def health(self) -> dict[str, Any]:
        """Like `InvertedFile.health`, over all lists. `fitted_at` is the earliest fit."""
        return health_of(self.parts)


def _per_shard(number: int, num_shards: int) -> int:
    """Returns the number of lists or probes per shard, from the number for a single file."""
    return math.ceil(number / math.sqrt(num_shards))
