"""`ShardedHashTables`: hash tables per shard of the rows."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.ops import devices
from tf_largeout.papers.lsh.hash_tables import HashTables, ScheduledHashTables, health_of
from tf_largeout.search.shard_draws import merge_found, seed_of, spread_shards
from tf_largeout.search.sharded_structure import ShardedStructure, best_of_shards, on_each_shard
from tf_largeout.variables.row_shard import RowShard, map_by_shard

_Codes = Sequence[tf.Tensor]  # per shard


class ShardedHashTables(ShardedStructure[ScheduledHashTables]):
    """`ScheduledHashTables` over rows in shards; see `ShardedStructure` for the arguments.

    The tables of a shard have the hash functions and the buckets that tables over all rows
    would have: two rows of a shard share a bucket if they would share it there. Each shard is
    rebuilt on its own. `codes` returns a list with an entry per shard, and the other methods
    take this list.

    Args:
        shards: The shards.
        parts: The tables, all of which have the same arguments.
    """

    keep_up = on_each_shard(ScheduledHashTables.keep_up)
    rebuild_now = on_each_shard(ScheduledHashTables.rebuild_now)

    @property
    def num_tables(self) -> int:
        """The number of tables over all rows."""
        return self.parts[0].num_tables

    def build(self, num_rows: int, dim: int, add_weight: Callable[..., keras.Variable]) -> None:
        """Creates the state, see `HashTables.build`."""
        num_here = sum(map(_is_here, self.shards))
        for shard, tables in zip(self.shards, self.parts, strict=True):
            tables.build(
                shard.num_rows,
                dim,
                functools.partial(add_weight, shard=shard),
                num_rows_of_all=num_rows,
                num_parts=num_here if _is_here(shard) else 1,
            )

    def resume(self, before: Any) -> None:
        """Like `ScheduledHashTables.resume`, from tables with as many shards."""
        for tables, old in zip(self.parts, before.parts, strict=True):
            tables.resume(old)

    def codes(
        self,
        vectors: tf.Tensor,
        labels: tf.Tensor | None = None,
        others: tf.Tensor | None = None,
    ) -> list[tf.Tensor]:
        """Like `HashTables.codes`, for each shard."""
        return self.each(lambda _, tables: tables.codes(vectors, labels, others))

    def draw(
        self, codes: _Codes, seed: tf.Tensor, num_drawn: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Like `HashTables.draw`, from the entries of all shards."""

        def draw(
            shard: RowShard, tables: HashTables, own_codes: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            ids, size = tables.draw(own_codes, seed_of(seed, shard.number), num_drawn)
            return shard.to_global(ids), size

        ids, sizes = zip(*self.each(draw, codes), strict=True)
        sizes = tf.stack(sizes)
        owner = spread_shards(sizes, num_drawn, seed_of(seed, len(self.shards)))
        drawn = tf.gather(tf.stack(ids, axis=-1), owner, batch_dims=1)
        return drawn, tf.reduce_sum(sizes)

    def query(
        self,
        codes: _Codes,
        excluded: tf.Tensor,
        select: str,
        num_found: int,
        max_lookups: int,
        seed: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """See `HashTables.query`.

        Each shard contributes rows in proportion to its share of the entries in the query's
        buckets.
        """

        def query(
            shard: RowShard, tables: HashTables, own_codes: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            own_seed = None if seed is None else seed_of(seed, shard.number)
            arguments = shard.to_local(excluded), select, num_found, max_lookups, own_seed
            ids, num_filled = tables.query(own_codes, *arguments)
            return shard.to_global(ids), num_filled, tables.num_entries(own_codes)

        found, num_filled, num_entries = zip(*self.each(query, codes), strict=True)
        num_rows = [shard.num_rows for shard in self.shards]
        merge_seed = None if seed is None else seed_of(seed, len(self.shards))
        return merge_found(found, num_filled, num_entries, num_rows, merge_seed)

    def best_of_most_frequent(
        self,
        codes: _Codes,
        queries: tf.Tensor,
        excluded: tf.Tensor,
        num_candidates: int,
        num_best: int,
        score: Sequence[Callable[[tf.Tensor, tf.Tensor], tf.Tensor]],
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Like `HashTables.best_of_most_frequent`, with a function `score` per shard.

        Each of the K shards scores `num_candidates / K` of its rows, but at least `num_best`.
        """
        num_own = max(num_best, math.ceil(num_candidates / len(self.shards)))

        def best(
            shard: RowShard, tables: HashTables, own_codes: tf.Tensor, score: Any
        ) -> tuple[tf.Tensor, tf.Tensor]:
            own, sizes = shard.to_local(excluded), (num_own, num_best)
            scores, ids = tables.best_of_most_frequent(own_codes, queries, own, *sizes, score)
            return scores, shard.to_global(ids)

        found = self.each(best, codes, score)
        return best_of_shards(found, num_best, is_sorted=False)

    def collisions(
        self,
        vectors: tf.Tensor,
        ids: tf.Tensor,
        embeddings: Sequence[tf.Variable],
        rows_of_vectors: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """See `HashTables.collisions`."""

        def collisions(shard: RowShard, own: tf.Tensor) -> tf.Tensor:
            own_rows = None if rows_of_vectors is None else shard.to_local(rows_of_vectors)
            at = shard.number
            return self.parts[at].collisions(vectors, own, embeddings[at], own_rows)

        return map_by_shard(self.shards, ids, collisions)

    def fresh_share(self, embeddings: Sequence[tf.Variable]) -> tf.Tensor:
        """Like `HashTables.fresh_share`, over all rows."""
        shares = self.each(
            lambda shard, tables, rows: shard.num_rows * tables.fresh_share(rows), embeddings
        )
        return tf.add_n(shares) / sum(shard.num_rows for shard in self.shards)

    def health(self) -> dict[str, Any]:
        """Like `HashTables.health`, with the buckets of all shards added up."""
        return health_of(self.parts)


def _is_here(shard: RowShard) -> bool:
    """Returns whether this process holds the shard's rows."""
    return shard.device_anchor is None or devices.server_of(shard.device_anchor) is None
