"""The lists of an `InvertedFileSampler`, over the class embeddings of a layer."""

import functools
import math
from typing import Any

import tensorflow as tf

from tf_largeout.arguments import whole_number
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.classes.class_shard import ClassShard
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.samplers.shard_distribution import ShardDistribution
from tf_largeout.search import InvertedFile, RowDistribution
from tf_largeout.search.inverted_file import health_of


class ClassLists:
    """An `InvertedFile` over the class embeddings, or one for each of their shards.

    Of K shards each has the lists of its own rows, on its own device, and is searched there:
    what travels are features, and the ids and scores of the classes found. Each has
    1 / sqrt(K) of the lists that one matrix would have, and 1 / sqrt(K) of the probes: lists
    are as long as `4 sqrt(num_rows)` of them make them, and as many classes are scored in all.

    Args:
        num_lists: Number of lists of all classes in one matrix, or None for the default.
        knows_lists: As in `InvertedFile`.
    """

    def __init__(self, num_lists: int | None, knows_lists: bool) -> None:
        self.num_lists = whole_number("num_lists", num_lists, or_none=True)
        self._knows_lists = knows_lists
        self._files: list[InvertedFile] = []

    def build(self, sampler: Sampler, layer: ClassLayer) -> None:
        """Makes the state, as weights of `layer` that `sampler` adds."""
        shards, self._files = layer.class_matrix.shards(), []
        for shard in shards:
            num_lists = self.num_lists and _part(self.num_lists, len(shards))
            file = InvertedFile(num_lists, self._knows_lists)
            add_weight = functools.partial(sampler.add_weight, layer, shard=shard)
            file.build(shard.matrix.num_classes, shard.matrix.dim, add_weight)
            self._files.append(file)

    def fit(self, matrix: ClassScorer) -> None:
        """Fits the lists to the rows of now."""
        for shard, file in self._of(matrix):
            with shard.place():
                file.fit(*shard.matrix.variables())

    def keep_up(self, matrix: ClassScorer) -> None:
        """Counts a training step, and brings the lists up to date where that is due."""
        for shard, file in self._of(matrix):
            with shard.place():
                file.keep_up(*shard.matrix.variables())

    def search(
        self, matrix: ClassScorer, queries: tf.Tensor, k: int, num_probes: int
    ) -> tf.Tensor:
        """Most of the `k` classes of highest logit: int64 `[batch, k]`, -1 where none is.

        Args:
            matrix: The classes.
            queries: float32 `[batch, dim]`.
            k: Number of classes to find.
            num_probes: Number of lists that are searched, of those of one matrix.
        """
        probes, found = _part(num_probes, len(self._files)), []
        for shard, file in self._of(matrix):
            with shard.place():
                scores, ids = file.search(queries, k, probes)
                found.append((scores, shard.to_global(ids)))
        if len(found) == 1:
            return found[0][1]
        scores, ids = (tf.concat(parts, axis=1) for parts in zip(*found, strict=True))
        return tf.gather(ids, tf.math.top_k(scores, k).indices, batch_dims=1)

    def distribution(
        self, matrix: ClassScorer, queries: tf.Tensor
    ) -> RowDistribution | ShardDistribution:
        """The distribution of classes that is drawn from for each query."""
        shards, distributions = [], []
        for shard, file in self._of(matrix):
            with shard.place():
                distributions.append(file.distribution(queries))
            shards.append(shard)
        if len(shards) == 1:
            return distributions[0]
        return ShardDistribution(shards, distributions)

    def health(self) -> dict[str, Any]:
        """As `InvertedFile.health`, of all lists; `fitted_at` is that of the earliest fit."""
        return health_of(self._files)

    def _of(self, matrix: ClassScorer) -> list[tuple[ClassShard, InvertedFile]]:
        return list(zip(matrix.shards(), self._files, strict=True))


def _part(number: int, num_shards: int) -> int:
    """What one of the shards has of so many lists or probes."""
    return math.ceil(number / math.sqrt(num_shards))
