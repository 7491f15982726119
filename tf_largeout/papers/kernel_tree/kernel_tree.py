"""A tree of sums, which draws rows in proportion to a quadratic kernel."""

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import real_number, whole_number
from tf_largeout.ops import devices
from tf_largeout.papers.kernel_tree.kernel_tree_ops import (
    Projection,
    kernel_tree_build,
    kernel_tree_sample,
    kernel_tree_shape,
    kernel_tree_update,
)
from tf_largeout.types import AddWeight
from tf_largeout.variables.initializers import step_and_none, zeros_initializer
from tf_largeout.variables.replicas import local_variable

_MOST_ALPHA = 1e30  # so that its products with usual squares are finite in float32
_NUMBERS_OF_A_BLOCK = 2**20  # of rows that a build reads at once
_CHECKED_PER_STEP = 4  # leaves
# A build sums all rows. If rows keep changing without a call of `rows_changed`, it must not run
# in every step.
_ASKED_EVERY, _LEAST_DISTANCE = 10, 50  # steps


class KernelTree:
    """Draws rows for a query h with probability `q_i` in proportion to `alpha <h, w_i>^2 + 1`.

    With biases, rows and queries are `[w_i; b_i]` and `[h; 1]`. With a projection, all of them
    are first multiplied by a fixed random matrix. A node of the tree stores the sum of `w w'`
    over its rows, which gives the sum of their kernels for any query. A draw starts at the root
    and goes to a child with a probability in proportion to the child's sum, in O(dim^2 log
    num_rows) time.

    The sums are kept up to date: `rows_changed` records which rows have changed, and `keep_up`
    sums their leaves, and the nodes above, again. The tree then equals, bit for bit, a tree
    that is built from the current rows. Rows can also change without a call of `rows_changed`
    (by `set_weights` or a dense optimizer). To detect this, `keep_up` also examines other
    leaves in turn, and builds the tree again if one has changed.

    With `as_read`, each `w_i` is a function of the stored row, for example the row scaled to
    length 1. The tree then has copies of the `w_i`, which it sums and draws. `keep_up` makes
    new copies of the rows that have changed and of those that it examines.

    The state is on the device of the rows. It has about `2/3 dim^2 / leaf_size + 1` floats per
    row, where dim is the dimension of the kernel. With a projection, it also has the projected
    rows; with `as_read` and no projection, it has the copies.

    Args:
        alpha: Weight of the square.
        projection_dim: Dimension after the projection, or None for no projection.
        leaf_size: Number of rows of a leaf, which are scored one by one; None for
            `default_leaf_size`.
        as_read: Function that takes some stored rows, `[n, dim]`, and returns their `w_i` in
            the same shape; None if the `w_i` are the stored rows.

    Raises:
        ValueError: If an argument is out of range.

    References:
        Blanc & Rendle 2018, "Adaptive sampled softmax with kernel based sampling", section 3.
    """

    def __init__(
        self,
        alpha: float = 100.0,
        projection_dim: int | None = None,
        leaf_size: int | None = None,
        as_read: Callable[[tf.Tensor], tf.Tensor] | None = None,
    ) -> None:
        self.alpha = real_number("alpha", alpha, least=0, allow_least=False, most=_MOST_ALPHA)
        self.projection_dim = whole_number("projection_dim", projection_dim, or_none=True)
        self.leaf_size = whole_number("leaf_size", leaf_size, or_none=True, most=2**31 - 1)
        self._copies_rows, self._as_read = as_read is not None, as_read or tf.identity
        self._num_rows = self._rows_per_leaf = 0  # until `build`
        self._has_bias = False
        self._upkeep = TreeUpkeep()
        self._sums: keras.Variable = None
        self._projection: keras.Variable | None = None
        self._rows: keras.Variable | None = None  # projected, or as read

    def build(self, num_rows: int, dim: int, has_bias: bool, add_weight: AddWeight) -> None:
        """Creates the state. The first `keep_up` or `rebuild` computes the sums.

        `dim` is the width of a row, without its bias. A projection with a higher dimension than
        the rows raises a ValueError.
        """
        kernel_dim = dim + has_bias
        if self.projection_dim:
            if self.projection_dim > dim:
                raise ValueError(
                    f"`projection_dim` must be at most {dim}, the width of the embeddings. "
                    f"Received: projection_dim={self.projection_dim}. Leave it out for no "
                    "projection."
                )
            shape = (self.projection_dim, kernel_dim)
            self._projection = add_weight("projection", shape, "float32", zeros_initializer)
            kernel_dim = dim = self.projection_dim
        if self.projection_dim or self._copies_rows:
            self._rows = add_weight("rows", (num_rows, dim), "float32", zeros_initializer)
        self._num_rows, self._has_bias = num_rows, has_bias
        self._rows_per_leaf = min(self.leaf_size or default_leaf_size(kernel_dim), num_rows)
        shape = kernel_tree_shape(num_rows, kernel_dim, self._rows_per_leaf)
        self._sums = add_weight("sums", shape, "float32", zeros_initializer)
        self._upkeep.build(num_rows, self._rows_per_leaf, add_weight)

    def rebuild(
        self, seed: tf.Tensor, embeddings: tf.Variable, bias: tf.Variable | None = None
    ) -> None:
        """Builds the tree from the current rows, on this replica, in O(num_rows dim^2).

        `seed`, int64 `[2]`, is for the projection; it must be the same in each call.
        """
        self._upkeep.now(lambda: self._build(seed, embeddings, bias))

    def rows_changed(self, ids: tf.Tensor, old_rows: tf.Tensor | None = None) -> None:
        """Records changed rows for the next `keep_up`; ids may repeat, and -1 is padding.

        The sums cannot be updated here, because a step changes the biases after the rows.
        """
        self._upkeep.rows_changed(tf.cast(ids, tf.int64))

    def keep_up(
        self, seed: tf.Tensor, embeddings: tf.Variable, bias: tf.Variable | None = None
    ) -> None:
        """Counts a training step, and updates the sums to the current rows.

        The first step builds the tree. Later steps sum the leaves of the rows that have
        changed, and examine some other leaves in turn. If these are not the sums of their rows,
        the tree is built again, at most every 50 steps. Rows that are not finite, or whose
        squares overflow, raise a `tf.errors.InvalidArgumentError`.
        """

        def update(ids: tf.Tensor) -> tf.Tensor:
            if self._copies_rows:
                self._copy(tf.boolean_mask(ids, ids >= 0), embeddings, bias)
            return kernel_tree_update(ids, *self._summed(embeddings, bias))

        self._upkeep.advance(lambda: self._build(seed, embeddings, bias), update)

    def sample(
        self,
        queries: tf.Tensor,
        labels: tf.Tensor,
        seed: tf.Tensor,
        num_sampled: int,
        embeddings: tf.Variable,
        bias: tf.Variable | None = None,
        shared: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Draws rows with replacement, independently given the queries.

        See `kernel_tree_sample`. `num_sampled` is per query; with `shared`, for all together.
        """
        return kernel_tree_sample(
            self._kernel_queries(queries),
            labels,
            seed,
            *self._drawn_rows(embeddings, bias),
            local_variable(self._sums),
            self._rows_per_leaf,
            num_sampled,
            self.alpha,
            shared,
        )

    def kernels(
        self,
        queries: tf.Tensor,
        ids: tf.Tensor,
        embeddings: tf.Variable,
        bias: tf.Variable | None = None,
    ) -> tf.Tensor:
        """Returns `alpha <h, w_i>^2 + 1` of rows `[n]` for all queries, `[batch, n]`.

        Divided by `masses`, they are the `q_i`, if the sums are up to date.
        """
        variable, biases = self._drawn_rows(embeddings, bias)
        rows = tf.cast(tf.gather(variable, ids), tf.float32)
        if biases is not None:
            rows = tf.concat([rows, tf.gather(biases, ids)[:, tf.newaxis]], axis=1)
        products = tf.matmul(self._summed_queries(queries), rows, transpose_b=True)
        return self.alpha * tf.square(products) + 1

    def masses(self, queries: tf.Tensor) -> tf.Tensor:
        """Returns the sum of the kernels of all rows for each query, float32 `[batch]`."""
        queries = self._summed_queries(queries)
        root = self._root(queries.shape[1])
        squares = tf.reduce_sum(tf.matmul(queries, root) * queries, axis=1)
        return self.alpha * tf.maximum(squares, 0) + self._num_rows

    def health(self) -> dict[str, Any]:
        """Returns numbers about the tree, see `KernelTreeSampler.health`."""
        return {
            "built_at": self._upkeep.built_at(),
            "leaf_size": self._rows_per_leaf,
            "megabytes": 4e-6 * math.prod(self._sums.shape),
        }

    def _summed(
        self, embeddings: tf.Variable, bias: tf.Variable | None
    ) -> tuple[tf.Variable, tf.Variable | None, tf.Variable, int, Projection | None]:
        """Returns the arguments of the ops that sum rows."""
        projection = None
        if self._copies_rows:
            embeddings, bias = self._drawn_rows(embeddings, bias)
        elif self._projection is not None:
            projection = Projection(*map(local_variable, (self._projection, self._rows)))
        return embeddings, bias, local_variable(self._sums), self._rows_per_leaf, projection

    def _build(
        self, seed: tf.Tensor, embeddings: tf.Variable, bias: tf.Variable | None
    ) -> None:
        if self._projection is not None:
            matrix = local_variable(self._projection)
            spread = 1 / math.sqrt(matrix.shape[0])
            matrix.assign(tf.random.stateless_normal(matrix.shape, seed, stddev=spread))
        if self._copies_rows:
            self._copy_all(embeddings, bias)
        kernel_tree_build(*self._summed(embeddings, bias))

    def _copy_all(self, embeddings: tf.Variable, bias: tf.Variable | None) -> None:
        """Copies all rows, some at a time."""
        block = max(1, _NUMBERS_OF_A_BLOCK // embeddings.shape[1])

        def copy(first: tf.Tensor) -> tuple[tf.Tensor]:
            end = tf.minimum(first + block, self._num_rows)
            self._copy(tf.range(first, end), embeddings, bias)
            return (end,)

        start = (tf.constant(0, tf.int64),)
        tf.while_loop(lambda first: first < self._num_rows, copy, start, parallel_iterations=1)

    def _copy(self, ids: tf.Tensor, embeddings: tf.Variable, bias: tf.Variable | None) -> None:
        """Copies the rows `ids`, int64 `[n]`, scaled to length 1 or projected if needed."""
        # In float64, because rounding depends on which rows are copied together. The float32
        # result then has the same bits each time, and no leaf seems to have changed.
        rows = self._as_read(tf.cast(tf.gather(embeddings, ids), tf.float64))
        if self._projection is not None:
            if bias is not None:
                biases = tf.cast(tf.gather(bias, ids), tf.float64)
                rows = tf.concat([rows, biases[:, tf.newaxis]], axis=1)
            matrix = tf.cast(local_variable(self._projection).read_value(), tf.float64)
            rows = tf.matmul(rows, matrix, transpose_b=True)
        rows = tf.cast(rows, tf.float32)
        local_variable(self._rows).scatter_update(tf.IndexedSlices(rows, ids))

    def _drawn_rows(
        self, embeddings: tf.Variable, bias: tf.Variable | None
    ) -> tuple[tf.Variable, tf.Variable | None]:
        """Returns the rows that are summed and drawn, and their biases if not part of them."""
        rows = embeddings if self._rows is None else local_variable(self._rows)
        return rows, bias if self._projection is None else None

    def _kernel_queries(self, queries: tf.Tensor) -> tf.Tensor:
        """Returns the queries of the kernel, without a number for the bias."""
        if self._projection is None:
            return queries
        matrix = local_variable(self._projection).read_value()
        dim = queries.shape[1]
        return tf.matmul(queries, matrix[:, :dim], transpose_b=True) + tf.reduce_sum(
            matrix[:, dim:], axis=1
        )

    def _summed_queries(self, queries: tf.Tensor) -> tf.Tensor:
        """Returns the queries with the width of the rows that are summed."""
        queries = self._kernel_queries(queries)
        if self._has_bias and self._projection is None:
            queries = tf.pad(queries, [[0, 0], [0, 1]], constant_values=1)
        return queries

    def _root(self, dim: int) -> tf.Tensor:
        """Returns the sum of `w w'` over all rows, `[dim, dim]`."""
        rows, columns = np.indices([dim, dim])
        larger, smaller = np.maximum(rows, columns), np.minimum(rows, columns)
        # A slice of the variable would read all of it.
        root = tf.gather(local_variable(self._sums), self._sums.shape[0] - 1)
        return tf.gather(root, larger * (larger + 1) // 2 + smaller)


def default_leaf_size(dim: int) -> int:
    """Returns the number of rows of a leaf for a kernel of dimension `dim`.

    Larger leaves need less memory. Up to several times `dim`, they do not need more time.
    """
    return max(64, dim)


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
        """Creates the state. Each leaf except the last has `leaf_size` rows."""
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

        `build` sums all rows, in the first step, and later at most every 50 steps, if leaves
        have changed without a call of `rows_changed`. In other steps, `update` sums the leaves
        of ids, int64 `[n]`, padded with -1, and returns how many leaves had other sums.
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
