"""The forms of `LSHSampler` that find separate classes for each example."""

from typing import Any

import tensorflow as tf

from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.papers.lsh.class_tables import ClassTables
from tf_largeout.papers.lsh.hash_tables import LOOKUPS_PER_ROW
from tf_largeout.samplers.class_rows import score_of
from tf_largeout.samplers.hard_negative_sampler import HardNegativeSampler
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.types import Config

_WALK_LOOKUPS = 8  # the most table entries that an example reads, per class to find


class LSHSearch(HardNegativeSampler):
    """Finds classes that share buckets with each example.

    Without a tail, these are the classes that occur first, or most often, in the example's
    buckets. Uniform draws are added if there are too few. With `num_hard`, the classes that
    occur most often are scored exactly, and the best of them are the head.

    Args:
        num_sampled: As in `HardNegativeSampler`.
        num_hard: Number of classes from the tables, or None.
        tail: Name or `StaticSampler`.
        start_step: Number of the first step that searches, or None.
        form: "walk" or "frequent"; not used with `num_hard`.
        tables: The tables, which only this sampler uses.
    """

    name_in_messages = "LSHSampler"

    def __init__(
        self,
        num_sampled: int,
        num_hard: int | None,
        tail: Sampler | Config | str | None,
        start_step: int | None,
        form: str,
        tables: ClassTables,
    ) -> None:
        super().__init__(num_sampled, num_hard, tail, start_step)
        self._form, self._tables = form, tables

    def build(self, layer: ClassLayer) -> None:
        super().build(layer)
        self._tables.build(self, layer)

    def take_classes(self, before: Any, change: ClassChange) -> None:
        super().take_classes(before, change)
        self._tables.tables.resume(before._tables.tables)

    def keep_up(self, layer: ClassLayer) -> None:
        self._tables.keep_up(layer)

    def search(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> tf.Tensor:
        codes, tables = self._tables.queries(features, labels, layer).codes, self._tables.tables
        num = self.num_sampled
        if self.num_hard:
            # Not counted: replicas cannot add their counts in the branch of `tf.cond` where a
            # search that starts late runs.
            sizes, score = (num, self.num_hard), score_of(layer.class_matrix)
            return tables.best_of_most_frequent(codes, features, labels, *sizes, score)[1]
        lookups = num * (_WALK_LOOKUPS if self._form == "walk" else LOOKUPS_PER_ROW)
        seed = layer.next_seed()
        ids, num_filled = tables.query(codes, labels, self._form, num, lookups, seed)
        self._tables.count(tf.size(ids), tf.reduce_sum(tf.cast(num_filled, tf.int64)))
        return ids
