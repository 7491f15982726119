"""Hard classes from lists that are fitted to the class embeddings."""

import functools
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.arguments import one_of, whole_number
from tf_largeout.sampled_values import DRAWS, LEAST_COUNT, HeadAndTail, SampledValues
from tf_largeout.samplers.class_rows import rows_of, structure_over
from tf_largeout.samplers.hard_negative_sampler import HardNegativeSampler, distinct_in_row
from tf_largeout.samplers.registry import named
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.search import (
    InvertedFile,
    RowDistribution,
    ShardDistribution,
    ShardedInvertedFile,
)
from tf_largeout.types import Config


@named("inverted_file")
@keras.saving.register_keras_serializable(package="tf_largeout")
class InvertedFileSampler(HardNegativeSampler):
    """Finds the classes of highest logit of each row, most of them, in O(sqrt(num_classes)).

    An inverted file deals the rows of the class embeddings to lists of rows that point the
    same way. A row of the batch is scored against the lists' mean rows and then against the
    members of the `num_probes` best lists; the `num_hard` highest logits are its own negatives.
    The others are a static sample that the batch shares. The loss corrects for both exactly,
    whatever the search finds (see `HeadAndTail`): what it misses only makes the step less
    efficient.

    With `select="draw"` the negatives of a row's own are not the highest but drawn, with
    replacement, in O(sqrt(num_classes)) too: list l with probability
    `softmax_l(<m_l, h> + b_l + log(size_l))`, m_l and b_l its mean row and bias, and then one
    of its members uniformly. Without a tail the expected counts are known and corrected for:
    `num_sampled * q_c`, exactly, of the lists as they are, whatever the weights have become.
    With `num_hard` the distinct ones of so many draws are the head.

    The lists are fitted early in training (`start_step`), and a line on stderr says when;
    before, while random negatives are hard enough, no class is searched for and a step costs
    what the tail costs. From then on they are kept up to date inside the steps. If the weights
    are replaced by others, the lists are fitted anew; so they are by `rebuild`.

    State, as weights of the layer: `(dim + 12) * num_classes` bytes, with dim rounded up to a
    multiple of 16, and the means. A resumed run is equal to an uninterrupted one. With the
    embeddings on a GPU the state and the search are there too; the lists are brought up to date
    on the CPU, which takes a copy of the embeddings there and of the state back.

    Args:
        num_sampled: Number of classes a row is compared with, own and shared together. Large
            samples suit large batches, which share them: eight times as many as the batch has
            rows is a good start, and each position of a sequence is a row.
        num_lists: Number of lists; by default about `4 sqrt(num_classes)`. In K shards of the
            classes each has 1 / sqrt(K) of them, over its own rows and beside these, and of
            the probes.
        num_probes: Number of lists that are searched for a row; more find more, and cost more.
            Where lists are long, fewer are searched: none after those that hold as many members
            as `num_probes` lists of mean size. No list is longer than eight of these.
            Not used by draws.
        num_hard: How many own negatives a row gets, less than `num_sampled`; None for
            `num_sampled` of them, no tail and no correction (but of draws), from step 0 on.
            Each one adds a class per row of the batch that the step reads and updates, so few
            are best.
        tail: With `num_hard`, what draws the others: a name such as "uniform", or a static
            `Sampler`.
        start_step: Number of the training step that fits the lists and is the first to search,
            from 0. None for `num_classes / 200`, at least 100 and at most 1,000, or up to three
            times that while labels are new, whatever the loss and `num_sampled` (without a
            tail for 0), see lab/negatives/README.md.
        select: "highest", the default, for the classes of highest logit among those that are
            searched, or "draw".
        seed: Optional int that the layer's draws start from; random if None.

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
        self._file: InvertedFile | ShardedInvertedFile

    @property
    def counts_are(self) -> str:
        return DRAWS if self._draws_alone else super().counts_are

    @property
    def _draws_alone(self) -> bool:
        return self.select == "draw" and self.tail is None

    def build(self, layer: ClassLayer) -> None:
        super().build(layer)
        self._file = structure_over(
            layer.class_matrix,
            InvertedFile,
            ShardedInvertedFile,
            self.num_lists,
            self._draws_alone,
        )
        add_weight = functools.partial(self.add_weight, layer)
        self._file.build(layer.num_classes, layer.class_matrix.dim, add_weight)

    def keep_up(self, layer: ClassLayer) -> None:
        self._file.keep_up(*rows_of(layer.class_matrix))

    def search(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> tf.Tensor:
        return self._file.search(features, self.num_searched, self.num_probes)[1]

    def draw(
        self, features: tf.Tensor | None, labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues | HeadAndTail:
        if self.select == "highest":
            return super().draw(features, labels, layer)
        seed = layer.next_seed()

        def drawn() -> tuple[RowDistribution | ShardDistribution, tf.Tensor, tf.Tensor]:
            distribution = self._file.distribution(features)
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

    def rebuild(self, layer: ClassLayer) -> None:
        """Fits the lists to the weights of `layer` now, and starts the search.

        Training does it by itself. For use outside of a training step, after the embeddings
        were changed by hand.

        Args:
            layer: The layer that built this sampler.

        Raises:
            ValueError: If no layer has built it.
        """
        self.require_built()

        def start_and_fit() -> None:
            self.start.now()
            self._file.fit(*rows_of(layer.class_matrix))

        layer.class_matrix.each_replica(start_and_fit)

    def health(self, layer: ClassLayer) -> dict[str, Any]:
        """Returns numbers about the lists.

        Args:
            layer: The layer that built this sampler.

        Returns:
            A dict: `started_at`, the training step that was the first to search, or -1;
            `fitted_at`, the step of the last fit, counted from `started_at`, or -1;
            `num_lists`; the sizes of the `largest`, the `median` and the `smallest` list; and
            the share of `empty` lists.

        Raises:
            ValueError: If no layer has built it.
        """
        return {**super().health(layer), **self._file.health()}

    list_health = health  # its former name

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_lists": self.num_lists,
            "num_probes": self.num_probes,
            "select": self.select,
        }
