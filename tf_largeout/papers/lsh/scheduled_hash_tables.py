"""`ScheduledHashTables`: hash tables over rows that are trained."""

from typing import Any

import tensorflow as tf

from tf_largeout.ops import devices
from tf_largeout.papers.lsh.hash_tables import DEFAULT_BIN_SIZE, HashTables
from tf_largeout.papers.lsh.rebuild_schedule import RebuildSchedule
from tf_largeout.search.add_weight import AddWeight


class ScheduledHashTables(HashTables):
    """`HashTables` that are rebuilt inside training steps, see `RebuildSchedule`.

    Args:
        kind: As in `HashTables`.
        num_hashes: As in `HashTables`.
        num_tables: As in `HashTables`.
        every: As in `RebuildSchedule`.
        growth: As in `RebuildSchedule`.
        bin_size: As in `HashTables`.
    """

    def __init__(
        self,
        kind: str,
        num_hashes: int,
        num_tables: int,
        every: int,
        growth: float,
        bin_size: int = DEFAULT_BIN_SIZE,
    ) -> None:
        super().__init__(kind, num_hashes, num_tables, bin_size)
        self._schedule = RebuildSchedule(every, growth)

    def build(self, num_rows: int, dim: int, add_weight: AddWeight, **of_all: int) -> None:
        super().build(num_rows, dim, add_weight, **of_all)
        self._schedule.build(add_weight)

    def keep_up(
        self, seed: tf.Tensor, embeddings: tf.Variable, bias: tf.Variable | None = None
    ) -> None:
        """Counts a training step, and first rebuilds the tables if that is due.

        Args:
            seed: int64 `[2]`, the seed of the run. The hash functions depend only on it and on
                the step.
            embeddings: As in `rebuild`.
            bias: Not used: hashes compare directions.
        """

        def rebuild(step: tf.Tensor) -> None:
            with devices.device_scope_of(self._ids):
                self._rebuild_in(step, seed, embeddings)

        def is_stale() -> tf.Tensor:
            with devices.device_scope_of(self._ids):
                return self.are_stale(embeddings)

        self._schedule.advance(rebuild, is_stale)

    def rebuild_now(
        self, seed: tf.Tensor, embeddings: tf.Variable, bias: tf.Variable | None = None
    ) -> None:
        """Rebuilds outside the schedule; the next interval starts at this step.

        Args:
            seed: As in `keep_up`.
            embeddings: As in `keep_up`.
            bias: Not used.
        """
        self._schedule.now(lambda step: self._rebuild_in(step, seed, embeddings))

    def resume(self, before: Any) -> None:
        """Takes the step number of other `ScheduledHashTables`; the next step rebuilds."""
        self._schedule.resume(before._schedule)

    def _rebuild_in(self, step: tf.Tensor, seed: tf.Tensor, embeddings: tf.Variable) -> None:
        with devices.host_scope(self._functions):
            # Draws count up from 0, so no draw has the seed of a rebuild.
            seed = tf.stack([seed[0], -1 - step])
        self.rebuild(embeddings, seed)
