"""Negatives from hash tables over the class embeddings, and from an exact search."""

import functools
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_largeout.arguments import one_of
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.ops.sampling_ops import uniform_sample
from tf_largeout.papers.lsh.class_tables import ClassTables
from tf_largeout.papers.lsh.hash_tables import (
    LOOKUPS_PER_ROW,
    HashTableConfig,
    ScheduledHashTables,
    default_num_hashes,
    most_bits,
)
from tf_largeout.papers.lsh.lsh_ops import union_of_lists
from tf_largeout.sampled_values import DRAWS, NONE, HeadAndTail, SampledValues
from tf_largeout.samplers.hard_negative_sampler import HardNegativeSampler, seed_of_run
from tf_largeout.samplers.sampler import ClassLayer, Sampler, named
from tf_largeout.types import Config
from tf_largeout.variables.replicas import local_variable, summed

_UNIFORM_PART = 8  # one of so many draws of a pool is uniform
# The most table entries that an example reads, per class to find.
_POOL_LOOKUPS, _WALK_LOOKUPS = 4, 8


@named("lsh")
@keras.saving.register_keras_serializable(package="tf_largeout")
class LSHSampler(HardNegativeSampler):
    """Draws classes that fall into the same hash buckets as the example or its label.

    All class embeddings w_c are stored in L hash tables, each with K hashes. An example looks
    up its buckets by its features ("LSH Embedding"), by the embeddings of its labels ("LSH
    Label"), or by both ("mix and match"). With several queries, such as the features and two
    labels, an example looks up the L buckets of each of them, with equal weight. Class c is in
    one of the buckets of a query with probability `1 - (1 - p^K)^L`, where p is the collision
    probability of one hash. A search reads O(num_sampled + L) table entries per query,
    independently of the number of classes N. A rebuild of the tables costs O(K L N). There are
    four forms:

    * `form="pool"`: all examples of the batch share one pool of classes, `[num_sampled]`. With
      SimHash (the default), entries are drawn from the buckets of all examples. The expected
      count of class c is `m L sum_b (1 - theta_bc / pi)^K / E` for m draws, where theta_bc is
      the angle between query b and w_c, and E is the number of entries in these buckets. It is
      correct on average over the hash functions, up to the relative variance of E (of order 1 /
      L). An eighth of the draws are uniform, so for N classes no count is below `m / (8 N)`,
      whatever the direction of w_c. With other hashes, the expected counts are unknown. The
      pool is then the union of the classes that each example finds most often, and the loss
      does not correct for it.
    * `form="walk"`: each example has its own classes, `[batch, num_sampled]`: the first ones
      that a walk through its buckets finds. If the buckets have too few classes, uniform draws
      are added. The expected counts are set to 1, so the loss does not correct for them, as in
      the papers.
    * `form="frequent"`: like "walk", but with the classes that occur most often in the
      example's buckets.
    * `num_hard=T`, with `form=None` or "frequent": the classes that occur most often in the
      example's buckets are scored exactly. The T classes with the highest scores are the head
      of a `HeadAndTail`. The estimate of the denominator of the softmax is unbiased, whatever
      the tables return.

    The tables are weights of the layer (at most 4.4 L N bytes; with the classes in S shards
    `(4 + 0.4 S) L N`). They are rebuilt inside training steps at growing intervals, see
    `HashTableConfig`. If the embeddings are set directly, the tables are rebuilt within
    `rebuild_every` steps, or at once by `rebuild`.

    Args:
        num_sampled: Number of sampled classes per example.
        query: "embedding", "label" or "both".
        form: "pool", "walk" or "frequent". None selects "pool" if the loss can correct for it
            (with SimHash and without `num_hard`), otherwise "walk". A pool draws at most as
            many samples as there are classes. With SimHash, the number of hashes is limited,
            because each combination of hash values needs its own bucket. A step with a pool
            takes much less time than a step with as many classes for each example, and the
            model learns more, because the loss corrects for the draws.
        num_hard: Number of classes per example that come from the tables. None takes all from
            the tables, without a tail.
        tail: With `num_hard`, the sampler of the other classes: a name such as "uniform", or a
            static `Sampler`.
        start_step: With `num_hard`, the first training step that searches, counted from 0; it
            also builds the tables. None starts at step `num_classes / 200`, limited to the
            range from 100 to 1,000. If most labels have rarely occurred by then, the search
            starts later, but no later than at three times this step.
        tables: A `HashTableConfig`, or a dict of its arguments; None for its defaults.
        seed: Int that determines the random draws; None for a random seed.

    Attributes:
        tail: With `num_hard`, the `Sampler` of the tail; else None.
        num_hard: As given.
        tables: The `HashTableConfig`.

    Raises:
        ValueError: If an argument is out of range, if `tail` is a sampler that searches, or if
            `num_hard` is given and `form` is "pool" or "walk". When the layer is built: if the
            expected counts of a SimHash pool would be unknown, if a pool has more samples than
            there are classes, or if the tables need more memory than the machine has.

    References:
        Daghaghi et al. 2021, "A tale of two efficient and informative negative sampling
        distributions" (walk); Vijayanarasimhan et al. 2015, "Deep networks with large output
        spaces" (frequent).

    Example:
        head = LargeOutput(100_000, sampler=LSHSampler(1024, num_hard=64))
    """

    def __init__(
        self,
        num_sampled: int = 1024,
        query: str = "embedding",
        form: str | None = None,
        num_hard: int | None = None,
        tail: Sampler | Config | str | None = "uniform",
        start_step: int | None = 0,
        tables: HashTableConfig | Config | None = None,
        seed: int | None = None,
    ) -> None:
        self.tables = HashTableConfig.get(tables)
        self.query = one_of("query", query, ["embedding", "label", "both"])
        self.form = form if form is None else one_of("form", form, ["pool", "walk", "frequent"])
        if form not in (None, "frequent") and num_hard is not None:
            raise ValueError(
                "With `num_hard`, `form` must be None or 'frequent'. "
                f"Received: form={form!r}, num_hard={num_hard}. Leave out one of the two."
            )
        super().__init__(num_sampled, num_hard, tail, start_step, seed)
        has_counts = self.tables.hash == "simhash" and num_hard is None
        self._is_pool = self.form == "pool" or (self.form is None and has_counts)
        self._has_counts = self._is_pool and has_counts
        self._tables: ClassTables
        self._draws: keras.Variable = None

    @property
    def counts_are(self) -> str:
        if self._is_pool:
            return DRAWS if self._has_counts else NONE
        return super().counts_are

    def build(self, layer: ClassLayer) -> None:
        if self._is_pool:
            self._require_pool(layer.num_classes)
        super().build(layer)
        config, matrix = self.tables, layer.class_matrix
        num_hashes = config.num_hashes or default_num_hashes(
            config.hash, config.num_tables, layer.num_classes, self.num_sampled, config.bin_size
        )
        if self._is_pool and not config.num_hashes:
            num_hashes = min(num_hashes, most_bits(layer.num_classes))
        make = functools.partial(ScheduledHashTables, config, num_hashes)
        self._tables = ClassTables(matrix, make)
        self._tables.build(self, layer, matrix.dim)
        # Drawn classes, and how many of them are uniform draws that filled up.
        self._draws = self.add_weight(layer, "draw_counts", (2,), "int64", "zeros")

    def take_classes(self, before: Any, change: ClassChange) -> None:
        super().take_classes(before, change)
        self._tables.resume(before._tables)

    def keep_up(self, layer: ClassLayer) -> None:
        seed = seed_of_run(layer)
        self._tables.each(lambda table, part: part.keep_up(seed, *table.variables()))

    def draw(
        self, features: tf.Tensor | None, labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues | HeadAndTail:
        if not self._is_pool:
            return super().draw(features, labels, layer)
        pool = self._counted_pool if self._has_counts else self._union
        return pool(self._queries(features, labels, layer), labels, layer)

    def search(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> tf.Tensor:
        if self._is_pool:
            raise ValueError('A pool has no search. Pass form="walk" or `num_hard`.')
        codes, num = self._queries(features, labels, layer).codes, self.num_sampled
        if self.num_hard:
            # Not counted: replicas cannot add their counts in the branch of `tf.cond` where a
            # search that starts late runs.
            sizes = num, self.num_hard
            return self._tables.best_of_most_frequent(codes, features, labels, *sizes)[1]
        form = self.form or "walk"
        lookups = num * (_WALK_LOOKUPS if form == "walk" else LOOKUPS_PER_ROW)
        ids, num_filled = self._tables.query(
            codes, labels, form, num, lookups, layer.next_seed()
        )
        self._count(tf.size(ids), tf.reduce_sum(tf.cast(num_filled, tf.int64)))
        return ids

    def rebuild_replica(self, layer: ClassLayer) -> None:
        super().rebuild_replica(layer)
        seed = seed_of_run(layer)
        self._tables.each(lambda table, part: part.rebuild_now(seed, *table.variables()))

    def health(self, layer: ClassLayer) -> dict[str, Any]:
        """Returns numbers about the tables.

        Args:
            layer: The layer that built this sampler.

        Returns:
            A dict: `started_at`, the first training step that searched, or -1;
            `num_tables`, `num_hashes` and `num_buckets` per table; `largest_bucket`,
            `mean_bucket` and `empty_bucket_share`; `median_bucket_of_a_class`, the size that
            the buckets of half of the classes do not exceed; `fresh_share`, the share of table
            entries that are correct for the current weights; and `uniform_fill_share`, the
            share of the drawn classes that are uniform draws because the buckets had too few
            classes.

        Raises:
            ValueError: If no layer has built it.
        """
        health = super().health(layer)
        drawn, filled = self._draws.numpy().tolist()
        return {
            **health,
            **self._tables.health(),
            "fresh_share": self._tables.fresh_share(),
            "uniform_fill_share": filled / max(1, drawn),
        }

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "query": self.query,
            "form": self.form,
            "tables": self.tables.get_config(),
        }

    def _queries(
        self, features: tf.Tensor | None, labels: tf.Tensor, layer: ClassLayer
    ) -> "_Queries":
        if self.query == "embedding":
            return _Queries(features, self._tables.codes(features), None)
        classes = tf.gather_nd(labels, tf.where(labels >= 0))
        vectors = tf.stop_gradient(layer.class_matrix.rows(classes))
        if self.query == "label":
            return _Queries(vectors, self._tables.codes(vectors, labels), classes)
        no_classes = tf.fill(tf.shape(features)[:1], tf.constant(-1, tf.int64))
        return _Queries(
            tf.concat([features, vectors], axis=0),
            self._tables.codes(vectors, labels, features),
            tf.concat([no_classes, classes], axis=0),
        )

    def _counted_pool(
        self, queries: "_Queries", labels: tf.Tensor, layer: ClassLayer
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
        entries, num_entries = self._tables.draw(queries.codes, seed, max(1, num_from_tables))

        def uniform(number: int) -> tf.Tensor:
            no_labels = labels[:0]
            return uniform_sample(no_labels, uniform_seed, self.num_classes, number, True)[0]

        has_entries = num_entries > 0
        pool = tf.cond(
            has_entries,
            lambda: tf.concat([entries[:num_from_tables], uniform(num_uniform)], axis=0),
            lambda: uniform(self.num_sampled),
        )
        share = tf.where(has_entries, num_uniform, self.num_sampled) / self.num_classes
        weight = num_from_tables * self.tables.num_tables / tf.maximum(num_entries, 1)
        share, weight = tf.cast(share, tf.float32), tf.cast(weight, tf.float32)

        def counts_of(ids: tf.Tensor) -> tf.Tensor:
            found = self._tables.collisions(queries.vectors, ids, queries.classes)
            return share + weight * found

        self._count(self.num_sampled, 0)
        return SampledValues.of_pool(pool, labels, counts_of)

    def _union(
        self, queries: "_Queries", labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues:
        """Returns the classes that each example met most often, in turns."""
        num, none = self.num_sampled, labels[:, :0]
        lookups = _POOL_LOOKUPS * num
        lists, _ = self._tables.query(queries.codes, none, "frequent", num, lookups)
        pool, num_filled = union_of_lists(lists, layer.next_seed(), self.num_classes, num)
        self._count(num, num_filled)
        return SampledValues(pool, tf.ones(tf.shape(labels)), tf.ones(tf.shape(pool)))

    def _count(self, drawn: int | tf.Tensor, filled: int | tf.Tensor) -> None:
        """Counts draws of all replicas, so it must not be called in a branch of `tf.cond`."""
        counts = tf.stack([tf.cast(drawn, tf.int64), tf.cast(filled, tf.int64)])
        local_variable(self._draws).assign_add(summed(counts))

    def _require_pool(self, num_classes: int) -> None:
        """Raises a ValueError if no pool can be drawn from this number of classes."""
        most, num_hashes = most_bits(num_classes), self.tables.num_hashes
        obstacle = ""
        if self._has_counts and (num_hashes or 0) > most:
            obstacle = (
                "The expected counts of a pool are known only if each list of SimHash values "
                f"has a bucket of its own, so `num_hashes` must be at most {most} for "
                f"num_classes={num_classes}. Received: num_hashes={num_hashes}."
            )
        elif self.num_sampled > num_classes:
            obstacle = (
                f"A pool cannot have more samples than there are classes. Received: "
                f"num_sampled={self.num_sampled}, num_classes={num_classes}."
            )
        if obstacle:
            raise ValueError(
                f'{obstacle} Pass a lower number, or pass form="walk", which gives each '
                "example its own classes; the loss does not correct for them."
            )


class _Queries(NamedTuple):
    """The queries of a batch.

    `vectors`, `[n, dim]`, are the features of each example, the embeddings of all labels, or
    first the features and then the embeddings. `codes` are their buckets. `classes`, int64
    `[n]`, are the labels whose embeddings the vectors are, and -1 for features; None if all are
    features.
    """

    vectors: tf.Tensor
    codes: Any
    classes: tf.Tensor | None


@named("top_k")
@keras.saving.register_keras_serializable(package="tf_largeout")
class TopKSampler(HardNegativeSampler):
    """Takes the classes with the highest logits per example, exactly: "TopK softmax".

    These are the hardest possible negatives. Each step makes a pass over all classes, in
    O(num_classes), so this sampler is the reference for approximate searches. A label among
    these classes has no effect. With `num_hard=None`, as in Daghaghi et al. 2021, the sum over
    these classes replaces the partition function, without a correction. With `num_hard`, these
    classes are the head of a `HeadAndTail`, and the estimate of the partition function is
    unbiased.

    Args:
        num_sampled: Number of sampled classes per example: those with the highest logits plus
            those of the tail.
        num_hard: Number of classes with the highest logits per example; or None for all.
        tail: With `num_hard`, the sampler of the other classes: a name such as "uniform", or a
            static `Sampler`.
        start_step: With `num_hard`, the first training step that searches, counted from 0. None
            starts at step `num_classes / 200`, limited to the range from 100 to 1,000. If most
            labels have rarely occurred by then, the search starts later, but no later than at
            three times this step.
        seed: Int that determines the random draws; None for a random seed.

    Example:
        head = LargeOutput(100_000, sampler=TopKSampler(1024, num_hard=64))
    """

    def search(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> tf.Tensor:
        k = min(self.num_searched, self.num_classes)
        _, ids = layer.class_matrix.top_k(features, k)
        padding = tf.fill([tf.shape(ids)[0], self.num_searched - k], tf.constant(-1, tf.int64))
        return tf.concat([ids, padding], axis=1)  # a GPU has no kernel for tf.pad of int64
