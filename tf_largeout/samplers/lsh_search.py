"""The form of `LSHSampler` that finds classes of each row's own."""

from typing import Any

import tensorflow as tf

from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.samplers.class_tables import ClassTables
from tf_largeout.samplers.hard_negative_sampler import HardNegativeSampler
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.types import Config

# Entries that a row looks at, at most, per class that it wants.
_WALK_LOOKUPS, _FREQUENT_LOOKUPS = 8, 16


class LSHSearch(HardNegativeSampler):
    """Finds classes that share buckets with each row of the batch.

    Without a tail those that it meets first, or most often, filled up by uniform draws. With
    `num_hard` those that it meets most often, scored exactly: the best are the head.

    Args:
        num_sampled: As in `HardNegativeSampler`, like the next three.
        num_hard: Number of classes from the tables, or None.
        tail: Name or `StaticSampler`.
        start_step: Number of the first step that searches, or None.
        select: "walk" or "frequent", without a tail.
        tables: The tables, of this sampler alone.
    """

    name_in_messages = "LSHSampler"

    def __init__(
        self,
        num_sampled: int,
        num_hard: int | None,
        tail: Sampler | Config | str | None,
        start_step: int | None,
        select: str,
        tables: ClassTables,
    ) -> None:
        super().__init__(num_sampled, num_hard, tail, start_step)
        self._select, self._tables = select, tables

    def build(self, layer: ClassLayer) -> None:
        super().build(layer)
        self._tables.build(self, layer)

    def take_classes(self, before: Any, change: ClassChange) -> None:
        super().take_classes(before, change)
        self._tables.resume(before._tables)

    def keep_up(self, layer: ClassLayer) -> None:
        self._tables.keep_up(layer)

    def search(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> tf.Tensor:
        queries = self._tables.queries(features, labels, layer)
        if self.num_hard:
            # Without a count: replicas cannot add theirs in the branch of a late start.
            return queries.best_of_most_frequent(
                features, labels, self.num_sampled, _FREQUENT_LOOKUPS, self.num_hard
            )
        lookups = _WALK_LOOKUPS if self._select == "walk" else _FREQUENT_LOOKUPS
        ids, num_filled = queries.find(
            labels,
            self._select,
            self.num_sampled,
            lookups * self.num_sampled,
            layer.next_seed(),
        )
        self._tables.count(tf.size(ids), tf.reduce_sum(tf.cast(num_filled, tf.int64)))
        return ids
