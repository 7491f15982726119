"""Negatives from hash tables over the class embeddings."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout.arguments import one_of
from tf_largeout.papers.lsh.class_tables import ClassTables
from tf_largeout.papers.lsh.hash_table_config import HashTableConfig
from tf_largeout.papers.lsh.lsh_pool import LSHPool
from tf_largeout.papers.lsh.lsh_search import LSHSearch
from tf_largeout.sampled_values import HeadAndTail, SampledValues
from tf_largeout.samplers.rebuildable import Rebuildable
from tf_largeout.samplers.registry import named, require_num_hard
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.types import Config


@named("lsh")
@keras.saving.register_keras_serializable(package="tf_largeout")
class LSHSampler(Rebuildable):
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

    searches = True

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
        super().__init__(num_sampled, seed)
        self.tables = HashTableConfig.get(tables)
        self._tables = ClassTables(query, self.tables)
        self.query = self._tables.query
        self.form = form if form is None else one_of("form", form, ["pool", "walk", "frequent"])
        if form not in (None, "frequent") and num_hard is not None:
            raise ValueError(
                "With `num_hard`, `form` must be None or 'frequent'. "
                f"Received: form={form!r}, num_hard={num_hard}. Leave out one of the two."
            )
        require_num_hard(tail, num_hard)
        self._form: LSHPool | LSHSearch
        can_count = self.tables.hash == "simhash" and num_hard is None
        if self.form == "pool" or (self.form is None and can_count):
            self._form = LSHPool(num_sampled, start_step, self._tables)
        else:
            self._form = LSHSearch(
                num_sampled, num_hard, tail, start_step, self.form or "walk", self._tables
            )
        self.tail, self.num_hard = self._form.tail, self._form.num_hard
        self.parts, self.start = (self._form,), self._form.start

    @property
    def counts_are(self) -> str:
        return self._form.counts_are

    def build(self, layer: ClassLayer) -> None:
        self._form.build(layer)
        super().build(layer)

    def prepare(self, layer: ClassLayer) -> None:
        self._form.prepare(layer)

    def draw(
        self, features: tf.Tensor | None, labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues | HeadAndTail:
        return self._form.draw(features, labels, layer)

    def search(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> tf.Tensor:
        """Finds classes as `HardNegativeSampler.search` does. A pool has no search.

        Args:
            features: float32 `[batch, dim]`, the inputs of `layer`.
            labels: int64 `[batch, num_labels]`, padded with -1.
            layer: The layer that built this sampler.

        Returns:
            int64 `[batch, num_hard or num_sampled]`, distinct classes per example, padded
            with -1.

        Raises:
            ValueError: If this sampler draws a pool.
        """
        if isinstance(self._form, LSHPool):
            raise ValueError('A pool has no search. Pass form="walk" or `num_hard`.')
        return self._form.search(features, labels, layer)

    def rebuild_replica(self, layer: ClassLayer) -> None:
        self.start.now()
        self._tables.rebuild(layer)

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
        self.require_built()
        return {"started_at": self.start.started_at(), **self._tables.health(layer)}

    def get_config(self) -> Config:
        return {
            "num_sampled": self.num_sampled,
            "query": self.query,
            "form": self.form,
            "num_hard": self.num_hard,
            "tail": keras.saving.serialize_keras_object(self.tail),
            "start_step": self.start.step,
            "tables": self.tables.get_config(),
            "seed": self.seed,
        }
