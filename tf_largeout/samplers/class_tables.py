"""The hash tables of an `LSHSampler`, over the class embeddings of a layer."""

import functools
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_largeout.arguments import one_of, whole_number
from tf_largeout.ops import devices
from tf_largeout.replicas import local_variable, summed
from tf_largeout.samplers.rebuild_schedule import RebuildSchedule
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.search.hash_tables import BITS_PER_VALUE, HashTables, default_num_hashes

_NUM_TABLES = 50


class Queries(NamedTuple):
    """What the rows of a batch ask the tables with.

    Attributes:
        vectors: float32 `[n, dim]`, the features of the rows, or the embeddings of all labels.
        codes: int32 `[batch, k * num_tables]`, the buckets of the k vectors of each row; -1
            where a row has fewer than k.
    """

    vectors: tf.Tensor
    codes: tf.Tensor


class ClassTables:
    """`HashTables` over the class embeddings, rebuilt on a schedule inside training steps.

    Also counts what was drawn from them, for `health`.

    Args:
        query: What rows ask with: "embedding", their features, or "label", the embeddings of
            their labels.
        hash: "simhash", "dwta" or "wta".
        num_hashes: K, or None for the default of `LSHSampler`.
        num_tables: L, or None for 50.
        schedule: The `RebuildSchedule`.

    Attributes:
        hash_tables: The `HashTables`, once they are built.
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
        self.schedule = schedule
        self.hash_tables: HashTables = None  # type: ignore[assignment]  # until built
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
        self.hash_tables = HashTables(self.hash, num_hashes, num_tables)
        self.hash_tables.build(
            layer.num_classes,
            layer.class_matrix.dim,
            functools.partial(sampler.add_weight, layer),
        )
        self.schedule.build(sampler, layer)
        self._draws = sampler.add_weight(layer, "draw_counts", (2,), "int64", "zeros")

    def keep_up(self, layer: ClassLayer) -> None:
        """Counts a training step, and rebuilds the tables before it where that is due."""
        embeddings, _ = layer.class_matrix.variables()
        self.schedule.advance(
            layer,
            lambda step: self._rebuild(step, layer),
            lambda: self.hash_tables.are_stale(embeddings),
        )

    def rebuild(self, layer: ClassLayer) -> None:
        """Rebuilds now, on this replica; the next distance is this step's."""
        self.schedule.now(lambda step: self._rebuild(step, layer))

    def queries(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> Queries:
        """What the rows of a batch ask with.

        Args:
            features: float32 `[batch, dim]`.
            labels: int64 `[batch, num_labels]`, padded with -1.
            layer: The layer.
        """
        if self.query == "embedding":
            return Queries(features, self.hash_tables.codes(features))
        places = tf.where(labels >= 0)
        rows = tf.stop_gradient(layer.class_matrix.rows(tf.gather_nd(labels, places)))
        codes = self.hash_tables.codes(rows)
        shape = tf.concat([tf.shape(labels), [self.hash_tables.num_tables]], axis=0)
        none = tf.fill(shape, tf.constant(-1, tf.int64))  # int32 would go through the host
        codes = tf.tensor_scatter_nd_update(none, places, tf.cast(codes, tf.int64))
        codes = tf.reshape(codes, [shape[0], shape[1] * shape[2]])
        return Queries(rows, tf.cast(codes, tf.int32))

    def count(self, drawn: int | tf.Tensor, filled: int | tf.Tensor) -> None:
        """Counts classes drawn, and how many of them were uniform draws for want of others.

        Those of all replicas; not to be called in a branch of `tf.cond`.
        """
        counts = tf.stack([tf.cast(drawn, tf.int64), tf.cast(filled, tf.int64)])
        local_variable(self._draws).assign_add(summed(counts))

    def health(self, layer: ClassLayer) -> dict[str, Any]:
        """See `LSHSampler.table_health`."""
        health = self.hash_tables.health()
        median = health.pop("median_bucket_of_a_row")
        embeddings, _ = layer.class_matrix.variables()
        drawn, filled = self._draws.numpy().tolist()
        return {
            **health,
            "median_bucket_of_a_class": median,
            "fresh_share": float(self.hash_tables.fresh_share(embeddings)),
            "uniform_fill_share": filled / max(1, drawn),
        }

    def _rebuild(self, step: tf.Tensor, layer: ClassLayer) -> None:
        """Rebuilds by functions that depend on the layer's seed and the step alone."""
        first_seed = local_variable(layer.seed_state).read_value()[0]
        with devices.host_scope(layer.seed_state):
            seed = tf.stack([first_seed, -1 - step])  # steps count up from 0, as draws do
        self.hash_tables.rebuild(layer.class_matrix.variables()[0], seed)
