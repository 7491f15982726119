"""Negatives from hash tables over the class embeddings."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout.arguments import one_of
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.sampled_values import HeadAndTail, SampledValues
from tf_largeout.samplers.class_tables import ClassTables
from tf_largeout.samplers.former_lsh_arguments import accept_former_arguments
from tf_largeout.samplers.hash_table_config import HashTableConfig
from tf_largeout.samplers.lsh_pool import LSHPool
from tf_largeout.samplers.lsh_search import LSHSearch
from tf_largeout.samplers.registry import named
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.types import Config


@named("lsh")
@keras.saving.register_keras_serializable(package="tf_largeout")
class LSHSampler(Sampler):
    """Draws classes that fall into the same hash buckets as the example or its label.

    All class embeddings w_c are stored in L hash tables of K hashes each. An example looks up
    its buckets, by its features ("LSH Embedding") or by the embeddings of its labels ("LSH
    Label"), and meets class c with probability `1 - (1 - p^K)^L`, where p is the collision
    probability of one hash. A step costs O(num_sampled + L) per example, whatever the number of
    classes. There are four forms:

    * `form="pool"`: one pool of classes `[num_sampled]`, shared by the batch. With SimHash (the
      default), entries are drawn from all buckets of the batch. The expected count of class c
      is `m L sum_b (1 - theta_bc / pi)^K / E` for m draws, where theta is the angle between
      query and w_c, and E is the number of entries. It is right in the mean over hash
      functions, up to the relative variance of E (of order 1 / L). An eighth of the draws are
      uniform, so that no count is below `m / (8 N)`, wherever w_c points. With other hashes,
      the counts are unknown: the pool is the union of the classes that each example met most
      often, and the loss does not correct for it.
    * `form="walk"`: own classes `[batch, num_sampled]` for each example, by a walk through its
      buckets. If the buckets hold too few, uniform draws fill up the sample. The expected
      counts are 1: the loss does not correct for them, as in the papers.
    * `form="frequent"`: the same, with the classes that the example met most often.
    * `num_hard=T`, without a form: the classes met most often are scored exactly, and the T
      best are the head of a `HeadAndTail`. The loss is an unbiased estimate, whatever the
      tables return.

    The tables are weights of the layer (at most 4.4 L N bytes; with the classes in S shards
    `(4 + 0.4 S) L N`). They are rebuilt inside training steps at growing intervals, see
    `HashTableConfig`. If the embeddings are set directly, the tables are rebuilt within
    `rebuild_every` steps, or at once by `rebuild`.

    Former arguments still work as keywords: `hash`, `num_hashes`, `num_tables`,
    `rebuild_every` and `rebuild_growth`, which are now in `tables`, and `select` and `shared`,
    which are now `form` (`shared=True` is "pool", and `shared=False` is the form that `select`
    names).

    Args:
        num_sampled: Number of classes an example is compared with.
        query: "embedding" or "label".
        form: "pool", "walk" or "frequent". None for the pool if the loss can correct for it
            (with SimHash and without `num_hard`), and else "walk". A pool with SimHash takes at
            most as many hashes as there are buckets, and at most as many samples as there are
            classes. A step with a pool is much cheaper than a step with as many own classes,
            and learns more, because the loss corrects for the draws.
        num_hard: Number of classes per example that come from the tables, or None for all.
        tail: With `num_hard`, what draws the other classes: a name such as "uniform", or a
            static `Sampler`.
        start_step: With `num_hard`, the training step, from 0, that builds the tables and is
            the first to search. None for `num_classes / 200`, at least 100 and at most 1,000,
            or up to three times that while labels are new.
        tables: A `HashTableConfig`, or a dict of its arguments; None for its defaults.
        seed: Optional int that the layer's draws start from; random if None.

    Attributes:
        tail: With `num_hard`, the `Sampler` of the tail; else None.
        num_hard: As given.
        tables: The `HashTableConfig`.

    Raises:
        ValueError: If an argument is out of range, or if `tail` is a sampler that searches, or
            if `form` and `num_hard` exclude each other. When the layer is built: if the counts
            of a pool would be unknown or it has more samples than there are classes, or if the
            tables need more memory than the machine has.

    References:
        Daghaghi et al. 2021, "A tale of two efficient and informative negative sampling
        distributions" (walk); Vijayanarasimhan et al. 2015, "Deep networks with large output
        spaces" (frequent).

    Example:
        head = LargeOutput(100_000, sampler=LSHSampler(1024, num_hard=64))
    """

    searches = True

    @accept_former_arguments
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
                "With `num_hard` each example gets the best of the classes it met most often. "
                f"Received: form={form!r}, num_hard={num_hard}. Pass only one of them."
            )
        self._form: LSHPool | LSHSearch
        if self._is_pool(num_hard):
            self._form = LSHPool(num_sampled, start_step, self._tables)
        else:
            self._form = LSHSearch(
                num_sampled, num_hard, tail, start_step, self.form or "walk", self._tables
            )
        self.tail, self.num_hard = self._form.tail, self._form.num_hard
        self.start = self._form.start

    @property
    def counts_are(self) -> str:
        return self._form.counts_are

    def build(self, layer: ClassLayer) -> None:
        self._form.build(layer)
        super().build(layer)

    def release(self) -> None:
        super().release()
        self._form.release()

    def take_classes(self, before: Any, change: ClassChange) -> None:
        self._form.take_classes(before._form, change)

    def prepare(self, layer: ClassLayer) -> None:
        self._form.prepare(layer)

    def draw(
        self, features: tf.Tensor | None, labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues | HeadAndTail:
        return self._form.draw(features, labels, layer)

    def search(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> tf.Tensor:
        """The search alone, as `HardNegativeSampler.search`; a pool has none.

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
            raise ValueError('A pool is drawn, not searched for. Pass form="walk".')
        return self._form.search(features, labels, layer)

    def rebuild(self, layer: ClassLayer) -> None:
        """Rebuilds the tables, and starts the search; the next distance counts from this step.

        Training does this automatically. Call it outside a training step, after setting the
        embeddings directly.

        Args:
            layer: The layer that built this sampler.

        Raises:
            ValueError: If no layer has built it.
        """
        self.require_built()

        def start_and_rebuild() -> None:
            self.start.now()
            self._tables.rebuild(layer)

        layer.class_matrix.each_replica(start_and_rebuild)

    def health(self, layer: ClassLayer) -> dict[str, Any]:
        """Returns numbers about the tables.

        Args:
            layer: The layer that built this sampler.

        Returns:
            A dict: `started_at`, the training step that was the first to search, or -1;
            `num_tables`, `num_hashes` and `num_buckets` per table; `largest_bucket`,
            `mean_bucket` and `empty_bucket_share`; `median_bucket_of_a_class`, the size that
            the buckets of half of the classes do not exceed; `fresh_share`, the share of table
            entries that are right for the current weights; and `uniform_fill_share`, the share
            of the drawn classes that are uniform draws, because the buckets held too few.

        Raises:
            ValueError: If no layer has built it.
        """
        self.require_built()
        return {"started_at": self.start.started_at(), **self._tables.health(layer)}

    table_health = health  # its former name

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

    def _is_pool(self, num_hard: int | None) -> bool:
        """Whether the batch shares a pool: if asked for, or by default if it has counts."""
        if self.form is None:
            return self.tables.hash == "simhash" and num_hard is None
        return self.form == "pool"
