"""Negatives out of hash tables over the class embeddings."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout.arguments import boolean, one_of
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.sampled_values import HeadAndTail, SampledValues
from tf_largeout.samplers.class_tables import ClassTables
from tf_largeout.samplers.lsh_pool import LSHPool
from tf_largeout.samplers.lsh_search import LSHSearch
from tf_largeout.samplers.rebuild_schedule import RebuildSchedule
from tf_largeout.samplers.registry import named
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.types import Config


@named("lsh")
@keras.saving.register_keras_serializable(package="tf_largeout")
class LSHSampler(Sampler):
    """Draws classes that fall into the same hash buckets as the example or its label.

    All class embeddings w_c lie in L hash tables of K hashes each. A row asks for its buckets,
    by its features ("LSH Embedding") or by the embeddings of its labels ("LSH Label"), and
    meets class c with probability `1 - (1 - p^K)^L`, where p is the collision probability of
    one hash. A step costs O(num_sampled + L) per row, whatever the number of classes. Forms:

    * `shared=False`: own classes `[batch, m]` for each row, by a walk through its buckets, or
      with `select="frequent"` those met most often. Where the buckets hold too few, uniform
      draws fill up. Expected counts are 1: not corrected for, as in the papers.
    * `shared=True`: one pool `[m]` for the batch. SimHash (this is `LSHSampler(m)`): entries
      are drawn from all buckets of the batch, and the expected count of class c is
      `m L sum_b (1 - theta_bc / pi)^K / E`, theta the angle between query and w_c, E the
      number of entries: right in the mean over hash functions, up to the relative variance of
      E (of order 1 / L). An eighth of the draws are uniform, so that no count is below
      `m / (8 N)`, wherever w_c points. Other hashes have no such form: the union of the
      classes that each row met most often, not corrected for.
    * `num_hard=T`: the classes met most often are scored exactly, and the T best are the head
      of a `HeadAndTail`; its loss is an unbiased estimate whatever the tables give.

    The tables are weights of the layer (at most 4.4 L N bytes, in S shards of the classes
    `(4 + 0.4 S) L N`), and are rebuilt inside the training step at growing intervals; also
    where the embeddings were set by hand, within `rebuild_every` steps, or at once by
    `rebuild`.

    Args:
        num_sampled: Number of classes a row is compared with.
        query: "embedding" or "label".
        hash: "simhash", "dwta" or "wta", the last two over 8 numbers per value.
        num_hashes: K. By default such that the L buckets of a row would hold about
            `8 num_sampled` entries if classes fell into buckets evenly.
        num_tables: L, 50 by default.
        select: "walk" or "frequent"; used where each row has its own uncorrected classes.
        shared: Whether the batch shares one pool. None shares where the pool is corrected for:
            SimHash, the walk, no `num_hard`. That takes no more hashes than buckets allow, and
            no more samples than classes. A step with a shared pool is far cheaper than one with
            as many own classes, and learns more per step, as it is corrected for.
        num_hard: How many classes of a row come from the tables, or None for all.
        tail: With `num_hard`, what draws the others: a name such as "uniform", or a static
            `Sampler`.
        rebuild_every: Steps between the first two builds.
        rebuild_growth: Factor g by which that distance grows from rebuild to rebuild: rebuild i
            is at step `rebuild_every (g^i - 1) / (g - 1)`.
        start_step: With `num_hard`, number of the training step, from 0, that builds the
            tables and is the first to search; None for `num_classes / 200`, at least 100 and
            at most 1,000, or up to three times that while labels are new.
        seed: Optional int that the layer's draws start from; random if None.

    Attributes:
        tail: With `num_hard`, the `Sampler` of the tail; else None.
        num_hard: As given.

    Raises:
        ValueError: If an argument is out of range, `shared` is True and there is a `num_hard`,
            or `tail` searches. When the layer is built: if a shared pool cannot be corrected
            for or has more samples than there are classes, or the tables take more memory than
            the machine has.

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
        hash: str = "simhash",
        num_hashes: int | None = None,
        num_tables: int | None = None,
        select: str = "walk",
        shared: bool | None = None,
        num_hard: int | None = None,
        tail: Sampler | Config | str | None = "uniform",
        rebuild_every: int = 50,
        rebuild_growth: float = 1.5,
        start_step: int | None = 0,
        seed: int | None = None,
    ) -> None:
        super().__init__(num_sampled, seed)
        self._schedule = RebuildSchedule(rebuild_every, rebuild_growth)
        self._tables = ClassTables(query, hash, num_hashes, num_tables, self._schedule)
        self.query, self.hash = self._tables.query, self._tables.hash
        self.num_hashes, self.num_tables = self._tables.num_hashes, self._tables.num_tables
        self.select = one_of("select", select, ["walk", "frequent"])
        self.shared = None if shared is None else boolean("shared", shared)
        if self.shared and num_hard is not None:
            raise ValueError(
                "A shared pool has no classes of a row's own. Received: shared=True, "
                f"num_hard={num_hard}. Leave one of them out."
            )
        self._form: LSHPool | LSHSearch
        if self._shares_by_default(num_hard) if shared is None else shared:
            self._form = LSHPool(num_sampled, start_step, self._tables)
        else:
            self._form = LSHSearch(
                num_sampled, num_hard, tail, start_step, select, self._tables
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
        """The search alone, as `HardNegativeSampler.search`; a shared pool has none.

        Args:
            features: float32 `[batch, dim]`, the inputs of `layer`.
            labels: int64 `[batch, num_labels]`, padded with -1.
            layer: The layer that built this sampler.

        Returns:
            int64 `[batch, num_hard or num_sampled]`, distinct classes in each row, padded
            with -1.

        Raises:
            ValueError: If this sampler draws a shared pool.
        """
        if isinstance(self._form, LSHPool):
            raise ValueError("A shared pool is drawn, not searched for. Pass shared=False.")
        return self._form.search(features, labels, layer)

    def rebuild(self, layer: ClassLayer) -> None:
        """Rebuilds the tables now, and starts the search; the next distance is this step's.

        Training does it by itself. For use outside of a training step, after the embeddings
        were changed by hand.

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

    def table_health(self, layer: ClassLayer) -> dict[str, Any]:
        """What the tables are like now.

        Args:
            layer: The layer that built this sampler.

        Returns:
            A dict of numbers: `num_tables`, `num_hashes`, `num_buckets` per table;
            `largest_bucket`, `mean_bucket`, `empty_bucket_share`; `median_bucket_of_a_class`,
            the size that the buckets of half of the classes do not exceed; `fresh_share`, how
            much of the tables is right by the weights of now; `uniform_fill_share`, how much
            of what was drawn so far came from uniform draws, because the buckets held too
            little.

        Raises:
            ValueError: If no layer has built it.
        """
        self.require_built()
        return self._tables.health(layer)

    def get_config(self) -> Config:
        return {
            "num_sampled": self.num_sampled,
            "num_hard": self.num_hard,
            "tail": keras.saving.serialize_keras_object(self.tail),
            "start_step": self.start.step,
            "seed": self.seed,
            "query": self.query,
            "hash": self.hash,
            "num_hashes": self.num_hashes,
            "num_tables": self.num_tables,
            "select": self.select,
            "shared": self.shared,
            **self._schedule.get_config(),
        }

    def _shares_by_default(self, num_hard: int | None) -> bool:
        """Whether the batch shares a pool that is corrected for."""
        return self.hash == "simhash" and self.select == "walk" and num_hard is None
