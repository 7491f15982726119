"""When the sums of a tree are updated, and which of them."""

from collections.abc import Callable

import keras
import tensorflow as tf

from tf_largeout.ops import devices
from tf_largeout.search.add_weight import AddWeight
from tf_largeout.variables.initializers import step_and_none, zeros_initializer
from tf_largeout.variables.replicas import local_variable

_CHECKED_PER_STEP = 4  # leaves
# A build sums all rows. If rows keep changing without a call of `rows_changed`, it must not run
# in every step.
_ASKED_EVERY, _LEAST_DISTANCE = 10, 50  # steps


class TreeUpkeep:
    """Records which rows of a tree have changed, and checks the others.

    Its state is weights: a flag per row and per leaf, two counters, and the number of leaves
    that have changed without a call of `rows_changed`. A step reads the flags of all leaves,
    and the flags of the rows of changed leaves; on a GPU, the flags of all rows.
    """

    def __init__(self) -> None:
        self._num_rows = self._leaf_size = 0  # until `build`
        self._touched: keras.Variable = None
        self._touched_leaves: keras.Variable = None
        self._num_stale: keras.Variable = None
        self._schedule: keras.Variable = None

    def build(self, num_rows: int, leaf_size: int, add_weight: AddWeight) -> None:
        """Creates the state.

        Args:
            num_rows: Number of rows.
            leaf_size: Number of rows of each leaf except the last.
            add_weight: Function that creates a weight.
        """
        self._num_rows, self._leaf_size = num_rows, leaf_size
        # One more each, for padding.
        flags, leaf_flags = (num_rows + 1,), (self._num_leaves + 1,)
        self._touched = add_weight("touched", flags, "float32", zeros_initializer)
        self._touched_leaves = add_weight(
            "touched_leaves", leaf_flags, "float32", zeros_initializer
        )
        self._num_stale = add_weight("num_stale", (), "int64", zeros_initializer)
        self._schedule = add_weight("schedule", (2,), "int64", step_and_none, on_host=True)

    def rows_changed(self, ids: tf.Tensor) -> None:
        """Records changed rows, int64 `[n]`. Ids may repeat; -1 is padding."""
        self._flag(ids, 1.0)

    def advance(
        self, build: Callable[[], object], update: Callable[[tf.Tensor], tf.Tensor]
    ) -> None:
        """Counts a training step, and updates the tree before it.

        Args:
            build: Function that sums all rows. Called in the first step, and later at most
                every 50 steps, if leaves have changed without a call of `rows_changed`.
            update: Function of int64 ids `[n]`, padded with -1, that sums the leaves of these
                rows and returns how many leaves had other sums. Called in the other steps.
        """
        schedule = local_variable(self._schedule)

        def build_all() -> tf.Tensor:
            with devices.device_scope_of(self._touched):
                build()
                self._forget()
            return step

        def update_some() -> tf.Tensor:
            with devices.device_scope_of(self._touched):
                self._update(step, update)
            return built_at

        with devices.host_scope(self._schedule):
            step, built_at = tf.unstack(schedule.read_value())
            age = step - built_at
            stale = tf.cond(
                (age >= _LEAST_DISTANCE) & (age % _ASKED_EVERY == 0),
                lambda: local_variable(self._num_stale).read_value() > 0,
                lambda: tf.constant(False),
            )
            built_at = tf.cond((built_at < 0) | stale, build_all, update_some)
            schedule.assign([step + 1, built_at])

    def now(self, build: Callable[[], object]) -> None:
        """Calls `build` outside a step."""
        schedule = local_variable(self._schedule)
        build()
        self._forget()
        step = schedule.read_value()[0]
        schedule.assign([step, step])

    def built_at(self) -> int:
        """Returns the number of the step of the last build, or -1."""
        return int(local_variable(self._schedule)[1])

    @property
    def _num_leaves(self) -> int:
        return -(-self._num_rows // self._leaf_size)

    def _update(self, step: tf.Tensor, update: Callable[[tf.Tensor], tf.Tensor]) -> None:
        ids = self._touched_ids()
        update(ids)
        self._flag(ids, 0.0)
        # Now all leaves have the sums of their rows, except for changes that were not recorded.
        turn = step * _CHECKED_PER_STEP + tf.range(_CHECKED_PER_STEP, dtype=tf.int64)
        ids = self._rows_of(turn % self._num_leaves)
        changed = update(tf.where(ids < self._num_rows, ids, -tf.ones_like(ids)))
        local_variable(self._num_stale).assign_add(changed)

    def _touched_ids(self) -> tf.Tensor:
        """Returns int64 `[n]`, the changed rows. On a GPU, -1 pads them, to avoid a wait."""
        touched = local_variable(self._touched)
        if "GPU" in touched.device:
            ids = tf.range(self._num_rows, dtype=tf.int64)
            return tf.where(touched.read_value()[:-1] > 0, ids, -tf.ones_like(ids))
        leaves = tf.where(local_variable(self._touched_leaves).read_value()[:-1] > 0)[:, 0]
        ids = tf.minimum(self._rows_of(leaves), self._num_rows)
        return tf.boolean_mask(ids, tf.gather(touched, ids) > 0)

    def _rows_of(self, leaves: tf.Tensor) -> tf.Tensor:
        """Returns int64 `[n]`, the rows of the leaves. The last leaf may exceed the rows."""
        rows = tf.range(self._leaf_size, dtype=tf.int64)
        return tf.reshape(leaves[:, tf.newaxis] * self._leaf_size + rows, [-1])

    def _flag(self, ids: tf.Tensor, value: float) -> None:
        values = tf.where(ids < 0, 0.0, value)
        for weight, places, none in (
            (self._touched, ids, self._num_rows),
            (self._touched_leaves, ids // self._leaf_size, self._num_leaves),
        ):
            places = tf.where(ids < 0, tf.constant(none, tf.int64), places)
            local_variable(weight).scatter_update(tf.IndexedSlices(values, places))

    def _forget(self) -> None:
        for weight in (self._touched, self._touched_leaves, self._num_stale):
            variable = local_variable(weight)
            variable.assign(tf.zeros_like(variable))
