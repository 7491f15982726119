"""`ClassTables`: hash tables per shard of the class rows."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_largeout.classes.row_sources import Table
from tf_largeout.ops import devices
from tf_largeout.papers.lsh.hash_tables import LOOKUPS_PER_ROW, ScheduledHashTables, health_of
from tf_largeout.samplers.hard_negative_sampler import SearchShards, best_of_shards, seed_of
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.variables.class_rows import map_by_shard

_GOLDEN_RATIO = 0.6180339887498949
_Codes = Sequence[tf.Tensor]  # per shard


class ClassTables(SearchShards[ScheduledHashTables]):
    """`ScheduledHashTables` over the class rows, per shard of the rows.

    The tables of a shard have the hash functions and the buckets that tables over all rows
    would have: two rows of a shard share a bucket if they would share it there. Each shard is
    rebuilt on its own. `codes` returns a list with an entry per shard, and the other methods
    take this list.
    """

    def build(self, sampler: Sampler, layer: ClassLayer, *arguments: Any) -> None:
        [dim] = arguments
        num_here = sum(map(_is_here, self.tables))
        for shard, tables in zip(self.tables, self.parts, strict=True):
            tables.build(
                shard.num_rows,
                dim,
                functools.partial(sampler.add_weight, layer, shard=shard),
                num_rows_of_all=layer.num_classes,
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
            shard: Table, tables: ScheduledHashTables, own_codes: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            ids, size = tables.draw(own_codes, seed_of(seed, shard.number), num_drawn)
            return shard.to_global(ids), size

        found = self.each(draw, codes)
        if len(found) == 1:
            return found[0]
        ids, sizes = zip(*found, strict=True)
        sizes = tf.stack(sizes)
        owner = spread_shards(sizes, num_drawn, seed_of(seed, len(found)))
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
        """See `HashTables.query`. A shard contributes by its share of the query's entries."""

        def query(
            shard: Table, tables: ScheduledHashTables, own_codes: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            own_seed = None if seed is None else seed_of(seed, shard.number)
            arguments = shard.to_local(excluded), select, num_found, max_lookups, own_seed
            ids, num_filled = tables.query(own_codes, *arguments)
            return shard.to_global(ids), num_filled

        parts = self.each(query, codes)
        if len(parts) == 1:
            return parts[0]
        found, num_filled = zip(*parts, strict=True)
        num_entries = self.each(lambda _, tables, own: tables.num_entries(own), codes)
        num_rows = [shard.num_rows for shard in self.tables]
        merge_seed = None if seed is None else seed_of(seed, len(parts))
        return merge_found(found, num_filled, num_entries, num_rows, merge_seed)

    def best_of_most_frequent(
        self,
        codes: _Codes,
        queries: tf.Tensor,
        excluded: tf.Tensor,
        num_candidates: int,
        num_best: int,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the rows with the highest logits among the most frequent ones in the buckets.

        `num_candidates` rows per query are scored. A query looks at up to 16 table entries per
        candidate. Each of K shards scores `num_candidates / K` of its rows, but at least
        `num_best`. The scores and ids, `[batch, num_best]`, are in any order; ids are -1 if a
        query's buckets have fewer rows.
        """
        num = max(num_best, math.ceil(num_candidates / len(self.tables)))
        lookups = LOOKUPS_PER_ROW * num

        def best(
            shard: Table, tables: ScheduledHashTables, own_codes: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            # Without a seed, because replicas cannot draw one in a branch of `tf.cond`, in
            # which a search with a late start runs.
            own = shard.to_local(excluded)
            found, _ = tables.query(own_codes, own, "frequent", num, lookups)
            logits = shard.dots(queries, found)
            scores, places = tf.math.top_k(logits, num_best, sorted=False)
            return scores, shard.to_global(tf.gather(found, places, batch_dims=1))

        return best_of_shards(self.each(best, codes), num_best, is_sorted=False)

    def collisions(
        self,
        vectors: tf.Tensor,
        ids: tf.Tensor,
        rows_of_vectors: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns how many vectors are expected in the SimHash bucket of each row, per table.

        For rows `ids`, int64 `[m]`, it is float32 `[m]`, the sum over the vectors of
        `HashTables.collision_probability`. `rows_of_vectors` are the rows that the vectors are,
        or -1; None if they are not rows.
        """

        def collisions(shard: Table, own: tf.Tensor) -> tf.Tensor:
            rows = tf.gather(shard.variables()[0], own)
            cosines = _cosines(vectors, tf.cast(rows, tf.float32))
            if rows_of_vectors is not None:
                # A row has angle 0 to itself. Rounding would make it about 4e-4: the angle of a
                # cosine of 1 - x is sqrt(2 x).
                own_rows = shard.to_local(rows_of_vectors)
                cosines = tf.where(own_rows[:, tf.newaxis] == own, 1.0, cosines)
            probabilities = self.parts[shard.number].collision_probability(cosines)
            return tf.reduce_sum(probabilities, axis=0)

        return map_by_shard(self.tables, ids, collisions)

    def fresh_share(self) -> float:
        """Like `HashTables.fresh_share`, over all rows."""
        shares = self.each(lambda shard, tables: tables.fresh_share(shard.variables()[0]))
        numbers = [shard.num_rows for shard in self.tables]
        total = sum(num * float(share) for num, share in zip(numbers, shares, strict=True))
        return total / sum(numbers)

    def health(self) -> dict[str, Any]:
        """Returns the sizes of the buckets, see `health_of`."""
        return health_of(self.parts)


def _is_here(shard: Table) -> bool:
    """Returns whether this process holds the shard's rows."""
    return shard.device_anchor is None or devices.server_of(shard.device_anchor) is None


def spread_shards(sizes: tf.Tensor, num_draws: int, seed: tf.Tensor) -> tf.Tensor:
    """Draws shards in proportion to their sizes, spread as evenly as possible, int32.

    Draw i takes the shard into which the fractional part of `u + i * phi` falls, with u uniform
    and phi the golden ratio. So any consecutive draws contain about the right share of each
    shard. A shard of size 0 is not drawn, unless all are empty.
    """
    start = tf.random.stateless_uniform([], seed, dtype=tf.float64, alg="philox")
    points = (start + _GOLDEN_RATIO * tf.range(num_draws, dtype=tf.float64)) % 1
    ends = tf.cumsum(sizes)
    places = tf.cast(points * tf.cast(ends[-1], tf.float64), tf.int64)
    owner = tf.searchsorted(ends, tf.minimum(places, ends[-1] - 1), side="right")
    return tf.minimum(owner, sizes.shape[0] - 1)


def merge_found(
    found: Sequence[tf.Tensor],
    num_filled: Sequence[tf.Tensor],
    num_met: Sequence[tf.Tensor],
    num_rows: Sequence[int],
    seed: tf.Tensor | None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Merges the rows that each shard found for the queries of a batch; keeps their order.

    First come rows that the query found in its buckets ("met"), from each shard in proportion
    to `num_met`. Then follow rows that were drawn uniformly, from each shard in proportion to
    `num_rows`.

    Args:
        found: For each shard int64 `[batch, n]`, distinct rows: rows that were met, then
            uniform draws, then padding with -1.
        num_filled: For each shard integers `[batch]`, the number of uniform draws.
        num_met: For each shard integers `[batch]`, the weight of the shard.
        num_rows: For each shard, its number of rows.
        seed: int64 `[2]`, for the position of each shard's first row in the order; None for
            the middle of its interval.
    """
    keys, uniform, num_found = [], [], found[0].shape[1]
    shape = [len(found), tf.shape(found[0])[0], 1]
    starts = tf.fill(shape, tf.constant(0.5, tf.float64))
    if seed is not None:
        starts = tf.random.stateless_uniform(shape, seed, dtype=tf.float64, alg="philox")
    for number, ids in enumerate(found):
        place = starts[number] + tf.range(num_found, dtype=tf.float64)
        num_ids = tf.math.count_nonzero(ids >= 0, axis=1, dtype=tf.int64)[:, tf.newaxis]
        first_filled = num_ids - tf.cast(num_filled[number], tf.int64)[:, tf.newaxis]
        is_filled = tf.range(num_found, dtype=tf.int64) >= first_filled
        met = tf.cast(tf.maximum(num_met[number], 1), tf.float64)[:, tf.newaxis]
        # Keys of rows that were met are below `num_found + 1`, because `met` is at least 1.
        after_all = (
            num_found + 1 + (place - tf.cast(first_filled, tf.float64)) / num_rows[number]
        )
        key = tf.where(is_filled, after_all, place / met)
        keys.append(tf.where(ids >= 0, key, float("inf")))
        uniform.append(is_filled & (ids >= 0))
    best = tf.math.top_k(-tf.concat(keys, axis=1), num_found).indices
    ids, drawn = (
        tf.gather(tf.concat(parts, axis=1), best, batch_dims=1) for parts in (found, uniform)
    )
    return ids, tf.math.count_nonzero(drawn, axis=1)


def _cosines(vectors: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Returns the cosines between vectors and rows, `[n, num_rows]`."""
    return tf.matmul(_directions(vectors), _directions(rows), transpose_b=True)


def _directions(rows: tf.Tensor) -> tf.Tensor:
    """Returns rows of length 1, `[n, dim + 1]`.

    The last number is 1 for the zero vector: it shares all hashes only with zero vectors.
    """
    norms = tf.norm(rows, axis=1, keepdims=True)
    return tf.concat([tf.math.divide_no_nan(rows, norms), tf.cast(norms == 0, tf.float32)], 1)
