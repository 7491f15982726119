"""Hard classes from an inverted file over the class embeddings."""

import functools
import math
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.arguments import one_of, whole_number
from tf_largeout.sampled_values import DRAWS, LEAST_COUNT, HeadAndTail, SampledValues
from tf_largeout.samplers.hard_negative_sampler import (
    HardNegativeSampler,
    SearchShards,
    best_of_shards,
    distinct_in_row,
    draw_shards,
    seed_of,
)
from tf_largeout.samplers.sampler import ClassLayer, Sampler, named
from tf_largeout.search.inverted_file import InvertedFile, RowDistribution, health_of
from tf_largeout.types import Config
from tf_largeout.variables.class_rows import RowShard


@named("inverted_file")
@keras.saving.register_keras_serializable(package="tf_largeout")
class InvertedFileSampler(HardNegativeSampler):
    """Finds most of the classes with the highest logits per example, in O(sqrt(num_classes)).

    An inverted file divides the class embeddings into lists of rows that point in similar
    directions. An example is compared with the mean row of each list, and then with the members
    of the `num_probes` best lists. The `num_hard` classes with the highest logits are its own
    negatives. The other negatives are a static sample that all examples of the batch share. The
    estimate of the denominator of the softmax is unbiased, whatever the search finds (see
    `HeadAndTail`). If the search misses a hard class, the model only learns less from the step.

    With `select="draw"`, an example's own negatives are instead drawn with replacement, also in
    O(sqrt(num_classes)). A draw first takes list l with probability `softmax_l(<m_l, h> + b_l +
    log(size_l))`, where m_l and b_l are the mean row and the mean bias of the list. It then
    takes one of the members of the list, all with the same probability. Without a tail, the
    expected counts are `num_sampled * q_c`, where q_c is the probability of class c in one
    draw. They are exact for the current lists, even if the weights have changed since the lists
    were fitted, and the loss corrects for them. With `num_hard`, the head has the distinct
    classes of `num_hard` draws.

    The lists are fitted in step `start_step`; before, random negatives are hard enough. Later
    training steps update the lists. The lists are fitted again if the weights are replaced, or
    if you call `rebuild`.

    The state is stored in weights of the layer. It takes `(dim + 12) * num_classes` bytes, with
    dim rounded up to a multiple of 16, plus the means. A resumed run equals an uninterrupted
    one. If the embeddings are on a GPU, the state and the search are there too. The lists are
    still updated on the CPU: the embeddings are copied to the CPU, and the state is copied
    back.

    Args:
        num_sampled: As in `HardNegativeSampler`. Eight times the number of examples in a batch
            is a good start. In sequences, each position is an example.
        num_lists: Number of lists; by default about `4 sqrt(num_classes)`. If the classes are
            in K shards, each shard has `num_lists / sqrt(K)` lists and searches `num_probes /
            sqrt(K)` of them.
        num_probes: Number of lists that are searched per example. With more lists, a search
            misses fewer classes and takes longer. If the best lists are long, fewer lists are
            searched: the search stops after as many classes as `num_probes` lists of mean size
            contain. No list is longer than eight times the mean size. Not used with
            `select="draw"`.
        num_hard: Number of own negatives per example, less than `num_sampled`. A step reads and
            updates the class rows of all of them, so a small number is best. None gives each
            example `num_sampled` own negatives from step 0 on, without a tail. The loss then
            corrects for the draws of `select="draw"`, but not for the classes of
            `select="highest"`.
        tail: As in `HardNegativeSampler`.
        start_step: As in `HardNegativeSampler`; this step fits the lists. The default is None.
            See lab/negatives/README.md.
        select: "highest" for the classes with the highest logits among those that are searched,
            or "draw".
        seed: Int that determines the random draws; None for a random seed.

    References:
        Chen et al. 2025, "Adaptive sampled softmax with inverted multi-index: methods, theory
        and applications" (arXiv 2501.08563): draws from lists of product quantization.

    Example:
        keras.Sequential([encoder, LargeOutput(200_000, sampler=InvertedFileSampler(1024))])
    """

    def __init__(
        self,
        num_sampled: int = 1024,
        num_lists: int | None = None,
        num_probes: int = 16,
        num_hard: int | None = 16,
        tail: Sampler | Config | str | None = "uniform",
        start_step: int | None = None,
        select: str = "highest",
        seed: int | None = None,
    ) -> None:
        super().__init__(num_sampled, num_hard, tail, start_step, seed)
        self.select = one_of("select", select, ["highest", "draw"])
        self.num_lists = whole_number("num_lists", num_lists, or_none=True)
        self.num_probes = whole_number("num_probes", num_probes)
        if self.select == "draw":
            self.counts_without_tail = DRAWS
        self._files: SearchShards[InvertedFile]

    def build(self, layer: ClassLayer) -> None:
        super().build(layer)
        tables = layer.class_matrix.shards()
        # With K shards, each has 1 / sqrt(K) of the lists, and searches `num_probes / sqrt(K)`
        # of them. So by default a shard has `4 sqrt(num_rows)` lists, and the number of rows
        # that are scored in total stays the same.
        shrinkage = math.sqrt(len(tables))
        num_lists = self.num_lists and math.ceil(self.num_lists / shrinkage)
        draws_alone = self.select == "draw" and self.tail is None
        options = num_lists, draws_alone, tables[0].unit_rows
        make = functools.partial(InvertedFile, *options)
        self._files = SearchShards(layer.class_matrix, make)
        self._files.build(self, layer, layer.class_matrix.dim)

    # XLA cannot compile the fit and the upkeep of lists.
    supports_jit = False

    def keep_up(self, layer: ClassLayer) -> None:
        for table, file in zip(self._files.tables, self._files.parts, strict=True):
            with table.place():
                file.keep_up(*table.variables())

    def search(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> tf.Tensor:
        num_probes = math.ceil(self.num_probes / math.sqrt(len(self._files.parts)))
        found = []
        for table, file in zip(self._files.tables, self._files.parts, strict=True):
            with table.place():
                scores, ids = file.search(features, self.num_searched, num_probes)
                found.append((scores, table.to_global(ids)))
        return best_of_shards(found, self.num_searched)[1]

    def draw(
        self, features: tf.Tensor | None, labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues | HeadAndTail:
        if self.select == "highest":
            return super().draw(features, labels, layer)
        seed = layer.next_seed()

        def drawn() -> tuple["_ClassDistribution", tf.Tensor, tf.Tensor]:
            distribution = _ClassDistribution(self._files, features)
            return distribution, *distribution.draw(self.num_searched, seed)

        if self.tail:
            return self.head_and_tail(
                lambda: distinct_in_row(drawn()[1]), features, labels, layer
            )
        distribution, ids, probabilities = drawn()
        of_labels = distribution.probabilities(tf.maximum(labels, 0))
        true_counts = tf.where(labels >= 0, self._counts(of_labels), 1)
        return SampledValues(ids, true_counts, self._counts(probabilities))

    def _counts(self, probabilities: tf.Tensor) -> tf.Tensor:
        return tf.maximum(self.num_sampled * probabilities, LEAST_COUNT)

    def rebuild_replica(self, layer: ClassLayer) -> None:
        super().rebuild_replica(layer)
        self._files.each(lambda table, file: file.fit(*table.variables()))

    def health(self, layer: ClassLayer) -> dict[str, Any]:
        """Returns numbers about the lists, by name.

        `started_at`: the first training step that searched, or -1; `fitted_at`: the step of the
        last fit, counted from `started_at`, or -1; `num_lists`; the sizes of the `largest`,
        `median` and `smallest` list; the share of `empty` lists. Errors are those of `Sampler`.
        """
        return {**super().health(layer), **health_of(self._files.parts)}

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_lists": self.num_lists,
            "num_probes": self.num_probes,
            "select": self.select,
        }


class _ClassDistribution:
    """`RowDistribution` over the classes: a draw takes a table, then one of its rows.

    The softmax is over the lists of all shards. Each shard makes all draws, on its device; a
    draw then uses the result of the shard that was drawn for it.
    """

    def __init__(self, files: SearchShards[InvertedFile], queries: tf.Tensor) -> None:
        self._files = files
        self._parts = files.each(lambda _, file: file.distribution(queries))
        if len(self._parts) > 1:
            masses = files.each(lambda table, _, part: part.log_mass(), self._parts)
            log_masses = tf.stack(masses, axis=1)
            sizes = tf.constant([table.num_rows for table in files.tables], tf.float32)
            has_lists = tf.reduce_any(tf.math.is_finite(log_masses), axis=1, keepdims=True)
            self._of_shard = tf.nn.softmax(tf.where(has_lists, log_masses, tf.math.log(sizes)))

    def draw(self, num_draws: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """See `RowDistribution.draw`."""

        def draw_of_shard(
            table: RowShard, _: InvertedFile, part: RowDistribution
        ) -> tuple[tf.Tensor, tf.Tensor]:
            ids, within = part.draw(num_draws, seed_of(seed, table.number))
            return table.to_global(ids), within

        drawn = self._files.each(draw_of_shard, self._parts)
        if len(drawn) == 1:
            return drawn[0]
        owner = draw_shards(self._of_shard, num_draws, seed_of(seed, len(drawn)))
        ids, within = (
            tf.gather(tf.stack(parts, axis=-1), owner, batch_dims=2)
            for parts in zip(*drawn, strict=True)
        )
        return ids, within * tf.gather(self._of_shard, owner, batch_dims=1)

    def probabilities(self, ids: tf.Tensor) -> tf.Tensor:
        """See `RowDistribution.probabilities`."""
        if len(self._parts) == 1:
            return self._parts[0].probabilities(ids)
        local_ids = [table.to_local(ids) for table in self._files.tables]
        found = self._files.each(
            lambda _, __, part, own: part.probabilities(tf.maximum(own, 0)),
            self._parts,
            local_ids,
        )
        total, shares = tf.zeros(tf.shape(ids)), tf.unstack(self._of_shard, axis=1)
        for own, within, share in zip(local_ids, found, shares, strict=True):
            total += tf.where(own >= 0, within * share[:, tf.newaxis], 0)
        return total
