"""What the rows of a batch find in hash tables over the classes."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_largeout.classes.class_shard import ClassShard
from tf_largeout.samplers.shard_draws import merge_found, seed_of, spread_shards
from tf_largeout.search.hash_tables import HashTables
from tf_largeout.variables.row_shard import map_by_shard


class TableQueries:
    """The rows of a batch, ready to ask the `HashTables` over the classes, or over each shard.

    Tables of shards are asked where they are: vectors and labels go there, and ids, scores and
    counts come back.

    Args:
        parts: Each shard and the tables over its rows.
        vectors: float32 `[n, dim]`: a row's features, or the embeddings of all labels.
        labels: None where each row has one vector; else int64 `[batch, num_labels]`, padded
            with -1, whose vectors those of its labels are.
    """

    def __init__(
        self,
        parts: Sequence[tuple[ClassShard, HashTables]],
        vectors: tf.Tensor,
        labels: tf.Tensor | None,
    ) -> None:
        self._parts, self._vectors = parts, vectors
        self._classes = None if labels is None else tf.gather_nd(labels, tf.where(labels >= 0))
        self._codes = []
        for shard, tables in parts:
            with shard.place():
                self._codes.append(_codes(tables, vectors, labels))

    def draw(self, num_drawn: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """As `HashTables.draw`, out of the entries of all shards."""
        if len(self._parts) == 1:
            return self._parts[0][1].draw(self._codes[0], seed, num_drawn)

        def of(shard: ClassShard, tables: HashTables, codes: tf.Tensor) -> tuple[Any, Any]:
            ids, size = tables.draw(codes, seed_of(seed, shard.number), num_drawn)
            return shard.to_global(ids), size

        ids, sizes = zip(*self._each(of), strict=True)
        sizes = tf.stack(sizes)
        owner = spread_shards(sizes, num_drawn, seed_of(seed, len(self._parts)))
        drawn = tf.gather(tf.stack(ids, axis=-1), owner, batch_dims=1)
        return drawn, tf.reduce_sum(sizes)

    def find(
        self,
        excluded: tf.Tensor,
        select: str,
        num_found: int,
        max_lookups: int,
        seed: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """As `HashTables.query`, of which these are the arguments.

        Of shards each gives as many of what it finds as are its share of the entries in the
        row's buckets.
        """
        if len(self._parts) == 1:
            return self._parts[0][1].query(
                self._codes[0], excluded, select, num_found, max_lookups, seed
            )

        def of(shard: ClassShard, tables: HashTables, codes: tf.Tensor) -> tuple[Any, ...]:
            own_seed = None if seed is None else seed_of(seed, shard.number)
            arguments = shard.to_local(excluded), select, num_found, max_lookups, own_seed
            ids, num_filled = tables.query(codes, *arguments)
            return shard.to_global(ids), num_filled, tables.num_entries(codes)

        found, num_filled, num_entries = zip(*self._each(of), strict=True)
        num_classes = [shard.matrix.num_classes for shard, _ in self._parts]
        of_merge = None if seed is None else seed_of(seed, len(self._parts))
        return merge_found(found, num_filled, num_entries, num_classes, of_merge)

    def best_of_most_frequent(
        self,
        features: tf.Tensor,
        excluded: tf.Tensor,
        num_candidates: int,
        lookups_per_candidate: int,
        num_best: int,
    ) -> tf.Tensor:
        """Of the classes met most often those of the highest logits.

        Of K shards each scores 1 / K of the candidates, but no fewer than are wanted.

        Args:
            features: float32 `[batch, dim]`.
            excluded: int64 `[batch, m]`, classes that a row must not find, padded with -1.
            num_candidates: How many classes of a row are scored, those met most often.
            lookups_per_candidate: Entries of the tables that are looked at for each.
            num_best: How many of these are given, at most `num_candidates`.

        Returns:
            int64 `[batch, num_best]`, -1 where fewer are met.
        """
        num = max(num_best, math.ceil(num_candidates / len(self._parts)))

        def of(shard: ClassShard, tables: HashTables, codes: tf.Tensor) -> tuple[Any, Any]:
            # Without a seed: on several replicas none can be drawn in the branch of a late
            # start.
            lookups = lookups_per_candidate * num
            found, _ = tables.query(codes, shard.to_local(excluded), "frequent", num, lookups)
            logits, best = tf.math.top_k(
                shard.matrix.dots(features, found), num_best, sorted=False
            )
            return logits, shard.to_global(tf.gather(found, best, batch_dims=1))

        scored = self._each(of)
        if len(scored) == 1:
            return scored[0][1]
        logits, ids = (tf.concat(parts, axis=1) for parts in zip(*scored, strict=True))
        _, best = tf.math.top_k(logits, num_best, sorted=False)
        return tf.gather(ids, best, batch_dims=1)

    def collisions(self, ids: tf.Tensor) -> tf.Tensor:
        """How many vectors share a bucket of a SimHash table with a class, in the mean.

        Args:
            ids: int64 `[n]`, classes, whose rows of now count.

        Returns:
            float32 `[n]`: the sum over the vectors of `(1 - theta / pi)^K`.
        """

        def of(shard: ClassShard, own: tf.Tensor) -> tf.Tensor:
            cosines = _cosines(self._vectors, shard.matrix.rows(own))
            if self._classes is not None:
                # A class has angle 0 to its own row. Rounding would make it about 4e-4: the
                # angle of a cosine of 1 - x is sqrt(2 x).
                is_own = self._classes[:, tf.newaxis] == shard.to_global(own)
                cosines = tf.where(is_own, 1.0, cosines)
            met = self._parts[shard.number][1].collision_probability(cosines)
            return tf.reduce_sum(met, axis=0)

        return map_by_shard([shard for shard, _ in self._parts], ids, of)

    def _each(self, function: Callable[[ClassShard, HashTables, Any], Any]) -> list[Any]:
        """`function(shard, tables, codes)` of each shard, there."""
        found = []
        for (shard, tables), codes in zip(self._parts, self._codes, strict=True):
            with shard.place():
                found.append(function(shard, tables, codes))
        return found


def _codes(tables: HashTables, vectors: tf.Tensor, labels: tf.Tensor | None) -> tf.Tensor:
    """The buckets of the k vectors of each row, int32 `[batch, k * num_tables]`."""
    codes = tables.codes(vectors)
    if labels is None:
        return codes
    shape = tf.concat([tf.shape(labels), [tables.num_tables]], axis=0)
    none = tf.fill(shape, tf.constant(-1, tf.int64))  # int32 would go through the host
    codes = tf.cast(codes, tf.int64)
    codes = tf.tensor_scatter_nd_update(none, tf.where(labels >= 0), codes)
    return tf.cast(tf.reshape(codes, [shape[0], shape[1] * shape[2]]), tf.int32)


def _cosines(vectors: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Cosines of the angles between vectors and rows, `[n, number of rows]`."""
    return tf.matmul(_directions(vectors), _directions(rows), transpose_b=True)


def _directions(rows: tf.Tensor) -> tf.Tensor:
    """Rows of length 1, `[n, dim + 1]`.

    The last number is 1 for the zero vector: all its hashes are those of any other zero
    vector, and it is at right angles to the rest.
    """
    norms = tf.norm(rows, axis=1, keepdims=True)
    return tf.concat([tf.math.divide_no_nan(rows, norms), tf.cast(norms == 0, tf.float32)], 1)
