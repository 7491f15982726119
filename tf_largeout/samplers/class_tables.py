"""The hash tables of an `LSHSampler`, over the class embeddings of a layer."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_largeout.arguments import one_of, whole_number
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.classes.class_shard import ClassShard
from tf_largeout.ops import devices
from tf_largeout.samplers.rebuild_schedule import RebuildSchedule
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.samplers.table_queries import TableQueries
from tf_largeout.search.hash_tables import (
    BITS_PER_VALUE,
    HashTables,
    default_num_hashes,
    health_of,
)
from tf_largeout.variables.replicas import local_variable, summed

_NUM_TABLES = 50


class _Part(NamedTuple):
    """The tables over the rows of one shard, and when they are rebuilt."""

    tables: HashTables
    schedule: RebuildSchedule


class ClassTables:
    """`HashTables` over the class embeddings, rebuilt on a schedule inside training steps.

    Of classes in shards each shard has tables of its own rows, on its own device, by the hash
    functions and with the buckets that tables over all classes would have: what stands in a
    bucket of one of these stands in the same bucket of the shards. Each is rebuilt by itself.

    Also counts what was drawn from them, for `health`.

    Args:
        query: What rows ask with: "embedding", their features, or "label", the embeddings of
            their labels.
        hash: "simhash", "dwta" or "wta".
        num_hashes: K, or None for the default of `LSHSampler`.
        num_tables: L, or None for 50.
        schedule: The `RebuildSchedule`, of which each shard gets a copy.
    """

    def __init__(
        self,
        query: str,
        hash: str,
        num_hashes: int | None,
        num_tables: int | None,
        schedule: RebuildSchedule,
    ) -> None:
        self.query = one_of("query", query, ["embedding", "label"])
        self.hash = one_of("hash", hash, list(BITS_PER_VALUE))
        self.num_hashes = whole_number("num_hashes", num_hashes, or_none=True)
        self.num_tables = whole_number("num_tables", num_tables, or_none=True)
        self._schedule = schedule
        self._parts: list[_Part] = []
        self._draws: keras.Variable = None

    def build(
        self, sampler: Sampler, layer: ClassLayer, most_hashes: int | None = None
    ) -> None:
        """Makes the state, as weights of `layer` that `sampler` adds.

        Args:
            sampler: The sampler that draws from the tables.
            layer: The layer that builds it.
            most_hashes: Bound of the default number of hashes, or None.
        """
        num_tables = self.num_tables or _NUM_TABLES
        default = default_num_hashes(
            self.hash, num_tables, layer.num_classes, sampler.num_sampled
        )
        num_hashes = self.num_hashes or min(default, most_hashes or default)
        shards = layer.class_matrix.shards()
        num_here = sum(_is_here(shard) for shard in shards)
        self._parts = []
        for shard in shards:
            tables = HashTables(self.hash, num_hashes, num_tables)
            part = _Part(tables, RebuildSchedule(self._schedule.every, self._schedule.growth))
            tables.build(
                shard.matrix.num_classes,
                shard.matrix.dim,
                functools.partial(sampler.add_weight, layer, shard=shard),
                layer.num_classes,
                num_here if _is_here(shard) else 1,
            )
            part.schedule.build(sampler, layer, shard)
            self._parts.append(part)
        self._draws = sampler.add_weight(layer, "draw_counts", (2,), "int64", "zeros")

    def keep_up(self, layer: ClassLayer) -> None:
        """Counts a training step, and rebuilds the tables before it where that is due."""
        for shard, part in self._of(layer.class_matrix):
            rebuild, embeddings = _rebuild_of(layer, shard, part), shard.matrix.variables()[0]
            with shard.place():
                part.schedule.advance(
                    rebuild, functools.partial(part.tables.are_stale, embeddings)
                )

    def rebuild(self, layer: ClassLayer) -> None:
        """Rebuilds now, on this replica; the next distance is this step's."""
        for shard, part in self._of(layer.class_matrix):
            rebuild = _rebuild_of(layer, shard, part)
            with shard.place():
                part.schedule.now(rebuild)

    def resume(self, before: "ClassTables") -> None:
        """Goes on with the steps of other tables, of as many shards; the next step builds."""
        for part, old in zip(self._parts, before._parts, strict=True):
            part.schedule.resume(old.schedule)

    def queries(
        self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer
    ) -> TableQueries:
        """What the rows of a batch ask with.

        Args:
            features: float32 `[batch, dim]`.
            labels: int64 `[batch, num_labels]`, padded with -1.
            layer: The layer.
        """
        parts = [(shard, part.tables) for shard, part in self._of(layer.class_matrix)]
        if self.query == "embedding":
            return TableQueries(parts, features, None)
        known = tf.gather_nd(labels, tf.where(labels >= 0))
        rows = tf.stop_gradient(layer.class_matrix.rows(known))
        return TableQueries(parts, rows, labels)

    def built_num_tables(self) -> int:
        """L, once they are built."""
        return self._parts[0].tables.num_tables

    def count(self, drawn: int | tf.Tensor, filled: int | tf.Tensor) -> None:
        """Counts classes drawn, and how many of them were uniform draws for want of others.

        Those of all replicas; not to be called in a branch of `tf.cond`.
        """
        counts = tf.stack([tf.cast(drawn, tf.int64), tf.cast(filled, tf.int64)])
        local_variable(self._draws).assign_add(summed(counts))

    def health(self, layer: ClassLayer) -> dict[str, Any]:
        """See `LSHSampler.table_health`."""
        health = health_of([part.tables for part in self._parts])
        median = health.pop("median_bucket_of_a_row")
        fresh = 0.0
        for shard, part in self._of(layer.class_matrix):
            with shard.place():
                share = part.tables.fresh_share(shard.matrix.variables()[0])
            fresh += float(share) * shard.matrix.num_classes
        drawn, filled = self._draws.numpy().tolist()
        return {
            **health,
            "median_bucket_of_a_class": median,
            "fresh_share": fresh / layer.num_classes,
            "uniform_fill_share": filled / max(1, drawn),
        }

    def _of(self, matrix: ClassScorer) -> Iterator[tuple[ClassShard, _Part]]:
        return zip(matrix.shards(), self._parts, strict=True)


def _is_here(shard: ClassShard) -> bool:
    """Whether this process has its rows."""
    return shard.device_anchor is None or devices.server_of(shard.device_anchor) is None


def _rebuild_of(
    layer: ClassLayer, shard: ClassShard, part: _Part
) -> Callable[[tf.Tensor], None]:
    """What rebuilds tables by functions that depend on the layer's seed and the step alone.

    Of shards the seed is read before, as it may be on another machine than they are.
    """
    embeddings, _ = shard.matrix.variables()
    beside, seed_before = layer.seed_state, None
    if shard.device_anchor is not None:
        beside, seed_before = shard.device_anchor, _first_seed(layer)

    def rebuild(step: tf.Tensor) -> None:
        first_seed = _first_seed(layer) if seed_before is None else seed_before
        with devices.host_scope(beside):
            seed = tf.stack([first_seed, -1 - step])  # steps count up from 0, as draws do
        part.tables.rebuild(embeddings, seed)

    return rebuild


def _first_seed(layer: ClassLayer) -> tf.Tensor:
    return local_variable(layer.seed_state).read_value()[0]
