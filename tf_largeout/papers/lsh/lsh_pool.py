"""The form of `LSHSampler` that draws one pool of classes for the batch."""

from typing import Any

import tensorflow as tf

from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.ops.sampling_ops import uniform_sample
from tf_largeout.papers.lsh.class_tables import ClassTables, TableQueries
from tf_largeout.papers.lsh.hash_tables import most_bits
from tf_largeout.papers.lsh.lsh_ops import union_of_lists
from tf_largeout.sampled_values import DRAWS, NONE, SampledValues
from tf_largeout.samplers.class_rows import rows_of
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.samplers.search_start import SearchStart

_UNIFORM_PART = 8  # one of so many draws is uniform
_LOOKUPS = 4  # most entries that an example reads, per class of the pool


class LSHPool(Sampler):
    """Draws one pool of classes from the buckets of the whole batch.

    With SimHash the expected counts of the draws are known. With other hashes they are not: the
    pool is the union of the classes that occur most often in the buckets of each example, with
    counts of 1.

    Args:
        num_sampled: Number m of classes, at most N, the number of classes of the layer.
        start_step: 0 or None. Without a tail, the search starts in the first step.
        tables: The tables, which only this sampler uses.
    """

    searches = True
    tail = num_hard = None
    name_in_messages = "LSHSampler"

    def __init__(self, num_sampled: int, start_step: int | None, tables: ClassTables) -> None:
        super().__init__(num_sampled)
        self.start = SearchStart(start_step, has_tail=False)
        self._tables = tables

    @property
    def counts_are(self) -> str:
        return DRAWS if self._tables.config.hash == "simhash" else NONE

    def build(self, layer: ClassLayer) -> None:
        obstacle = self._obstacle(layer.num_classes)
        if obstacle:
            raise ValueError(
                f'{obstacle} Pass a lower number, or pass form="walk", which '
                "gives each example its own classes; the loss does not correct for them."
            )
        super().build(layer)
        self._tables.build(self, layer, most_hashes=most_bits(layer.num_classes))

    def take_classes(self, before: Any, change: ClassChange) -> None:
        self._tables.tables.resume(before._tables.tables)

    def prepare(self, layer: ClassLayer) -> None:
        self._tables.keep_up(layer)

    def draw(
        self, features: tf.Tensor | None, labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues:
        queries = self._tables.queries(features, labels, layer)
        draw = self._counted if self._tables.config.hash == "simhash" else self._union
        return draw(queries, labels, layer)

    def _counted(
        self, queries: TableQueries, labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues:
        """Draws a few classes uniformly and the others from the buckets, with SimHash counts.

        Of the m draws, u are uniform. Each other draw takes one of the E entries of the batch's
        buckets with probability 1 / E. On average over the hash functions, class c has `L sum_b
        p_bc` of these entries, where `p_bc = (1 - theta_bc / pi)^K`. So its expected count is

            u / N + (m - u) L sum_b p_bc / E

        (the deterministic mixture of Owen & Zhou 2000). The angles are computed from the
        current embeddings, which may be newer than the tables. The second term is 0 for a class
        that points away from all examples. Because of the first term, no count is below u / N,
        whatever the angles. If the buckets have no entries, all draws are uniform.
        """
        num_uniform = -(-self.num_sampled // _UNIFORM_PART)
        num_from_tables = self.num_sampled - num_uniform
        seed, uniform_seed = layer.next_seed(), layer.next_seed()
        tables = self._tables.tables
        entries, num_entries = tables.draw(queries.codes, seed, max(1, num_from_tables))

        def uniform(number: int) -> tf.Tensor:
            return uniform_sample(
                labels[:0], uniform_seed, self.num_classes, number, unique=True
            )[0]

        has_entries = num_entries > 0
        pool = tf.cond(
            has_entries,
            lambda: tf.concat([entries[:num_from_tables], uniform(num_uniform)], axis=0),
            lambda: uniform(self.num_sampled),
        )
        share = tf.where(has_entries, num_uniform, self.num_sampled) / self.num_classes
        weight = num_from_tables * tables.num_tables / tf.maximum(num_entries, 1)
        share, weight = tf.cast(share, tf.float32), tf.cast(weight, tf.float32)

        def counts_of(ids: tf.Tensor) -> tf.Tensor:
            embeddings, _ = rows_of(layer.class_matrix)
            found = tables.collisions(queries.vectors, ids, embeddings, queries.classes)
            return share + weight * found

        self._tables.count(self.num_sampled, 0)
        return SampledValues.of_pool(pool, labels, counts_of)

    def _union(
        self, queries: TableQueries, labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues:
        """Returns the classes that each example met most often, in turns."""
        num, none = self.num_sampled, labels[:, :0]
        lookups = _LOOKUPS * num
        lists, _ = self._tables.tables.query(queries.codes, none, "frequent", num, lookups)
        pool, num_filled = union_of_lists(
            lists, layer.next_seed(), self.num_classes, self.num_sampled
        )
        self._tables.count(self.num_sampled, num_filled)
        return SampledValues(pool, tf.ones(tf.shape(labels)), tf.ones(tf.shape(pool)))

    def _obstacle(self, num_classes: int) -> str | None:
        """Returns why no pool can be drawn, in two sentences; or None."""
        most, num_hashes = most_bits(num_classes), self._tables.config.num_hashes
        if self._tables.config.hash == "simhash" and (num_hashes or 0) > most:
            return (
                "The expected counts of a pool are known only if each list of SimHash values "
                f"has a bucket of its own, so `num_hashes` must be at most {most} for "
                f"num_classes={num_classes}. Received: num_hashes={num_hashes}."
            )
        if self.num_sampled > num_classes:
            return (
                f"A pool cannot have more samples than there are classes. Received: "
                f"num_sampled={self.num_sampled}, num_classes={num_classes}."
            )
        return None
