"""The hash tables of an `LSHSampler`, over the class embeddings of a layer."""

import functools
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_largeout.arguments import one_of
from tf_largeout.papers.lsh.hash_table_config import HashTableConfig
from tf_largeout.papers.lsh.hash_tables import default_num_hashes
from tf_largeout.papers.lsh.scheduled_hash_tables import ScheduledHashTables
from tf_largeout.papers.lsh.sharded_hash_tables import ShardedHashTables
from tf_largeout.samplers.class_rows import rows_of, seed_of_run, structure_over
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.variables.replicas import local_variable, summed


class TableQueries(NamedTuple):
    """The queries of a batch.

    Attributes:
        vectors: float32 `[n, dim]`: the features of each example, the embeddings of all labels,
            or first the features and then the embeddings.
        codes: Their buckets, see `HashTables.codes`.
        classes: int64 `[n]`, the labels whose embeddings the vectors are, and -1 for features;
            None if all are features.
    """

    vectors: tf.Tensor
    codes: Any
    classes: tf.Tensor | None


class ClassTables:
    """Hash tables over the class embeddings, which are rebuilt inside training steps.

    It also counts how many classes were drawn from them, for `health`.

    Args:
        query: "embedding" to look up the features of an example, "label" to look up the
            embeddings of its labels, "both" to look up both.
        config: The configuration of the tables.
    """

    def __init__(self, query: str, config: HashTableConfig) -> None:
        self.query = one_of("query", query, ["embedding", "label", "both"])
        self.config = config
        self.tables: ScheduledHashTables | ShardedHashTables
        self._draws: keras.Variable = None

    def build(
        self, sampler: Sampler, layer: ClassLayer, most_hashes: int | None = None
    ) -> None:
        """Creates the state, as weights of `layer` that `sampler` adds.

        Args:
            sampler: The sampler that draws from the tables.
            layer: The layer that builds it.
            most_hashes: Upper bound of the default number of hashes, or None.
        """
        config, matrix = self.config, layer.class_matrix
        default = default_num_hashes(
            config.hash,
            config.num_tables,
            layer.num_classes,
            sampler.num_sampled,
            config.bin_size,
        )
        num_hashes = config.num_hashes or min(default, most_hashes or default)
        schedule = config.rebuild_every, config.rebuild_growth

        def make() -> ScheduledHashTables:
            sizes = num_hashes, config.num_tables
            return ScheduledHashTables(config.hash, *sizes, *schedule, config.bin_size)

        self.tables = structure_over(matrix, make, ShardedHashTables)
        add_weight = functools.partial(sampler.add_weight, layer)
        self.tables.build(layer.num_classes, matrix.dim, add_weight)
        self._draws = sampler.add_weight(layer, "draw_counts", (2,), "int64", "zeros")

    def keep_up(self, layer: ClassLayer) -> None:
        """Counts a training step, and first rebuilds the tables if that is due."""
        self.tables.keep_up(seed_of_run(layer), *rows_of(layer.class_matrix))

    def rebuild(self, layer: ClassLayer) -> None:
        """Rebuilds now, on this replica; the next interval starts at this step."""
        self.tables.rebuild_now(seed_of_run(layer), *rows_of(layer.class_matrix))

    def queries(
        self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer
    ) -> TableQueries:
        """Returns the queries of a batch.

        Args:
            features: float32 `[batch, dim]`.
            labels: int64 `[batch, num_labels]`, padded with -1.
            layer: The layer.
        """
        if self.query == "embedding":
            return TableQueries(features, self.tables.codes(features), None)
        classes = tf.gather_nd(labels, tf.where(labels >= 0))
        vectors = tf.stop_gradient(layer.class_matrix.rows(classes))
        if self.query == "label":
            return TableQueries(vectors, self.tables.codes(vectors, labels), classes)
        no_classes = tf.fill(tf.shape(features)[:1], tf.constant(-1, tf.int64))
        return TableQueries(
            tf.concat([features, vectors], axis=0),
            self.tables.codes(vectors, labels, features),
            tf.concat([no_classes, classes], axis=0),
        )

    def count(self, drawn: int | tf.Tensor, filled: int | tf.Tensor) -> None:
        """Counts the drawn classes, and how many of them are uniform draws.

        It adds the counts of all replicas, so it must not be called in a branch of `tf.cond`.
        """
        counts = tf.stack([tf.cast(drawn, tf.int64), tf.cast(filled, tf.int64)])
        local_variable(self._draws).assign_add(summed(counts))

    def health(self, layer: ClassLayer) -> dict[str, Any]:
        """See `LSHSampler.health`."""
        health = self.tables.health()
        median = health.pop("median_bucket_of_a_row")
        embeddings, _ = rows_of(layer.class_matrix)
        drawn, filled = self._draws.numpy().tolist()
        return {
            **health,
            "median_bucket_of_a_class": median,
            "fresh_share": float(self.tables.fresh_share(embeddings)),
            "uniform_fill_share": filled / max(1, drawn),
        }
