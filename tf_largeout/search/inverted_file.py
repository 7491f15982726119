"""Lists of rows that point in similar directions: a search in the best of them, and draws."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import whole_number
from tf_largeout.ops import devices
from tf_largeout.ops.inverted_file_ops import (
    inverted_file_fit,
    inverted_file_fitted,
    inverted_file_kept_up,
    inverted_file_search,
    inverted_file_upkeep,
    packed_shapes,
)
from tf_largeout.types import AddWeight
from tf_largeout.variables.initializers import step_and_none, zeros_initializer
from tf_largeout.variables.replicas import local_variable

_REASSIGNED_PER_STEP = 256  # rows; costs as much as a search for a usual batch
# Each reassignment packs all rows again. The interval bounds the cost per step.
_LEAST_INTERVAL = 48  # steps
_PACKED_PER_STEP = 4_200  # rows, on average


class RowDistribution:
    """The probability of each row for each query.

    For query h, list l has probability `softmax_l(<m_l, h> + b_l + log(size_l))`, where m_l and
    b_l approximate the means of the rows and the biases of the list. All rows of a list are
    equally likely. If no list has a finite score (before the first fit, or for queries that
    overflow), all rows are equally likely. The probabilities are exact even if the rows have
    changed since they were assigned. All methods cost O(num_lists) per query. `list_of_row`,
    uint32 `[num_rows]`, is only for `probabilities`; the other state is that of the ops.

    Chen et al. 2025, "Adaptive sampled softmax with inverted multi-index" (arXiv 2501.08563),
    do the same with lists from product quantization.
    """

    def __init__(
        self,
        queries: tf.Tensor,
        means: tf.Variable,
        mean_bias: tf.Variable,
        offsets: tf.Variable,
        ids: tf.Variable,
        list_of_row: tf.Variable | None,
    ) -> None:
        self._ids, self._list_of_row = ids, list_of_row
        self._offsets = tf.cast(offsets.read_value(), tf.int64)
        self._sizes = self._offsets[1:] - self._offsets[:-1]
        scores = tf.matmul(queries, means, transpose_b=True) + mean_bias
        usable = tf.math.is_finite(scores) & (self._sizes > 0)
        scores += tf.math.log(tf.cast(tf.maximum(self._sizes, 1), tf.float32))
        self._has_lists = tf.reduce_any(usable, axis=1, keepdims=True)
        self._scores = tf.where(usable, scores, tf.float32.min)
        list_probabilities = tf.nn.softmax(self._scores)
        self._list_probabilities = tf.where(usable, list_probabilities, 0)

    def log_mass(self) -> tf.Tensor:
        """Returns the log of the softmax's denominator, `[batch]`; -inf without lists."""
        mass = tf.reduce_logsumexp(self._scores, axis=1)
        return tf.where(self._has_lists[:, 0], mass, -float("inf"))

    def draw(self, num_draws: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws rows per query, independently, with replacement, by `seed`, int64 `[2]`.

        Returns `(ids, probabilities)`: int64 and float32 `[batch, num_draws]`.
        """
        shape = [2, tf.shape(self._has_lists)[0], num_draws]
        # In 64 bits, because float32 is too coarse for lists of small probability.
        of_list, of_member = tf.unstack(
            tf.random.stateless_uniform(shape, seed, dtype=tf.float64, alg="philox")
        )
        cumulative = tf.cumsum(tf.cast(self._list_probabilities, tf.float64), axis=1)
        lists = tf.searchsorted(cumulative, of_list * cumulative[:, -1:], side="right")
        lists = tf.minimum(lists, tf.shape(cumulative)[1] - 1)  # where there are no lists
        places = tf.gather(self._offsets, lists) + _scaled(
            of_member, tf.gather(self._sizes, lists)
        )
        ids = tf.cast(tf.gather(self._ids, places), tf.int64)
        any_row = _scaled(of_member, tf.fill([1, 1], tf.cast(self._ids.shape[0], tf.int64)))
        return tf.where(self._has_lists, ids, any_row), self._of_members(lists)

    def probabilities(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the probability of rows `ids`, int64 `[batch, n]`, in one draw; float32."""
        return self._of_members(tf.cast(tf.gather(self._list_of_row, ids), tf.int32))

    def _of_members(self, lists: tf.Tensor) -> tf.Tensor:
        """Returns the probability of one member of each of `lists`, int32 `[batch, n]`."""
        sizes = tf.cast(tf.gather(self._sizes, lists), tf.float32)
        probabilities = tf.gather(self._list_probabilities, lists, batch_dims=1)
        return tf.where(
            self._has_lists, tf.math.divide_no_nan(probabilities, sizes), 1 / self._ids.shape[0]
        )


class InvertedFile:
    """Finds most of the rows with the highest scores, in O(sqrt(num_rows)) time per query.

    The score of row i for query h is `<w_i, h> + b_i`; with `unit_length`, `w_i` is the row
    scaled to length 1. Spherical k-means assigns the rows to `num_lists` lists, by default
    about `4 sqrt(num_rows)`. A query is scored against the mean row of each list, and then
    against the members of the best lists, stored with 8 bits per number (Jegou, Douze, Schmid
    2011, "Product quantization for nearest neighbor search", section IV).

    The state takes `(dim + 12) * num_rows` bytes, plus the means, plus `4 num_rows` with
    `knows_lists`, which `RowDistribution.probabilities` needs. State and search are on the
    device of the rows. Fits and reassignments run on the CPU, if necessary on copies.
    """

    PARTS = ("means", "mean_bias", "offsets", "ids", "codes", "scales", "schedule")

    def __init__(
        self, num_lists: int | None = None, knows_lists: bool = False, unit_length: bool = False
    ) -> None:
        self.num_lists = whole_number("num_lists", num_lists, or_none=True)
        self._knows_lists, self._unit_length = knows_lists, unit_length
        self._interval = _LEAST_INTERVAL
        self._state: list[keras.Variable] = []
        self._list_of_row: keras.Variable | None = None

    def build(self, num_rows: int, dim: int, add_weight: AddWeight) -> None:
        """Creates the state. Until the first `fit` or `keep_up` no row is found."""
        lists = self.num_lists or max(1, round(4 * math.sqrt(num_rows)))
        lists = min(lists, num_rows)
        codes_shape, scales_shape = packed_shapes(num_rows, dim)
        self._interval = max(_LEAST_INTERVAL, num_rows // _PACKED_PER_STEP)
        self._state = [
            add_weight("means", (lists, dim), "float32", zeros_initializer),
            add_weight("mean_bias", (lists,), "float32", zeros_initializer),
            add_weight("offsets", (lists + 1,), "uint32", zeros_initializer),
            add_weight("ids", (num_rows,), "uint32", zeros_initializer),
            add_weight("codes", codes_shape, "uint8", zeros_initializer),
            add_weight("scales", scales_shape, "float32", zeros_initializer),
            add_weight("schedule", (2,), "int64", step_and_none, on_host=True),
        ]
        if self._knows_lists:
            self._list_of_row = add_weight(
                "list_of_row", (num_rows,), "uint32", zeros_initializer
            )

    def fit(self, embeddings: tf.Variable, bias: tf.Variable | None = None) -> None:
        """Fits the lists to the current rows: k-means on a part of them, one pass over all."""
        if not devices.is_on_gpu(self.variables()[0]):
            inverted_file_fit(embeddings, bias, self.variables(), self._unit_length)
        else:
            copies = self._copies(embeddings, bias)
            self._write(inverted_file_fitted(*copies, self._unit_length))
        if self._list_of_row is not None:
            self._note_lists(self._list_of_row)

    def keep_up(self, embeddings: tf.Variable, bias: tf.Variable | None = None) -> None:
        """Counts a training step, and updates the lists if that is due.

        The first step fits the lists. Later, every few steps, some rows are moved to the list
        that is now nearest, means are updated, and all rows are packed again. If nine in ten of
        these rows move, they must have been replaced, and the lists are fitted again.
        """
        is_on_cpu = not devices.is_on_gpu(self.variables()[0])
        if is_on_cpu and self._list_of_row is None:
            self._follow(embeddings, bias)  # in steps where nothing is due it only counts
            return
        schedule = self.variables()[-1]
        with devices.host_scope(self._state[-1]):
            step, fitted_at = tf.unstack(schedule.read_value())
            age = step - fitted_at
            only_counts = (fitted_at >= 0) & ((age <= 0) | (age % self._interval != 0))

            def count() -> bool:
                schedule.assign_add([1, 0])
                return True

            tf.cond(only_counts, count, lambda: self._follow(embeddings, bias))

    def search(
        self, queries: tf.Tensor, k: int | tf.Tensor, num_probes: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns most of the `k` rows with the highest scores, see `inverted_file_search`.

        The search stops after as many rows as `num_probes` lists of mean size contain.
        """
        return inverted_file_search(queries, self.variables(), num_probes, k)

    def deal(
        self,
        embeddings: tf.Variable,
        bias: tf.Variable | None,
        means: tf.Tensor,
        mean_bias: tf.Tensor,
        list_of_row: np.ndarray,
    ) -> None:
        """Assigns rows to given lists instead of a `fit`, eagerly and on the CPU.

        A list gets at most eight times the mean number of rows; small lists get further rows.
        """
        ends = np.cumsum(np.bincount(list_of_row, minlength=len(means)))
        by_list = np.argsort(list_of_row, kind="stable")
        offsets, ids = np.concatenate([[0], ends]).astype(np.uint32), by_list.astype(np.uint32)
        variables = self.variables()
        for variable, value in zip(variables, (means, mean_bias, offsets, ids), strict=False):
            variable.assign(value)
        variables[-1].assign([1, 0])  # the step after a fit: a turn, which packs all rows
        inverted_file_upkeep(embeddings, bias, variables, interval=1, rows_a_step=1)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns a dict of the arrays of the state, with the names in `PARTS`."""
        parts = zip(self.PARTS, self.variables(), strict=True)
        return {name: variable.numpy() for name, variable in parts}

    def lists(self) -> tuple[tf.Tensor, tf.Tensor, np.ndarray]:
        """Returns `(means, mean_bias, list_of_row)` of a fitted file, arguments of `deal`."""
        means, mean_bias, offsets, ids = (part.read_value() for part in self.variables()[:4])
        sizes = np.diff(offsets.numpy().astype(np.int64))
        list_of_row = np.empty(len(ids), np.int64)
        list_of_row[ids.numpy()] = np.repeat(np.arange(len(sizes)), sizes)
        return means, mean_bias, list_of_row

    def distribution(self, queries: tf.Tensor) -> RowDistribution:
        """Returns the distribution of the rows for queries `[batch, dim]`."""
        list_of_row = None if self._list_of_row is None else local_variable(self._list_of_row)
        means, mean_bias, offsets, ids = self.variables()[:4]
        return RowDistribution(queries, means, mean_bias, offsets, ids, list_of_row)

    def list_sizes(self) -> np.ndarray:
        """Returns the number of rows of each list."""
        return np.diff(self.variables()[2].numpy().astype(np.int64))

    def fitted_at(self) -> int:
        """Returns the number of the step of the last fit, or -1."""
        return int(self.variables()[6].numpy()[1])

    def _follow(self, embeddings: tf.Variable, bias: tf.Variable | None) -> bool:
        """Counts a step, and updates the lists if that is due."""
        arguments = self._interval, _REASSIGNED_PER_STEP, self._unit_length
        if not devices.is_on_gpu(self.variables()[0]):
            inverted_file_upkeep(embeddings, bias, self.variables(), *arguments)
        else:
            self._write(inverted_file_kept_up(*self._copies(embeddings, bias), *arguments))
        if self._list_of_row is not None:
            self._note_lists(self._list_of_row)
        return True

    def _note_lists(self, list_of_row_variable: keras.Variable) -> None:
        """Stores the list of each row, in O(num_rows log(num_lists))."""
        with devices.host_scope(self._state[-1]):
            offsets, ids = (
                tf.bitcast(variable.read_value(), tf.int32)
                for variable in self.variables()[2:4]
            )
            # The list of place i is the number of lists that end at or before i.
            places = tf.range(tf.size(ids))
            list_of_place = tf.searchsorted(offsets[1:], places, side="right")
            list_of_row = tf.scatter_nd(ids[:, tf.newaxis], list_of_place, tf.shape(ids))
            local_variable(list_of_row_variable).assign(tf.bitcast(list_of_row, tf.uint32))

    def variables(self) -> list[tf.Variable]:
        """Returns the `tf.Variable`s of the state on this replica, in the order of `PARTS`."""
        return list(map(local_variable, self._state))

    def _copies(
        self, embeddings: tf.Variable, bias: tf.Variable | None
    ) -> tuple[tf.Tensor, tf.Tensor | None, list[tf.Tensor]]:
        bias = None if bias is None else bias.read_value()
        state = [variable.read_value() for variable in self.variables()]
        return embeddings.read_value(), bias, state

    def _write(self, values: Sequence[tf.Tensor]) -> None:
        for variable, value in zip(self.variables(), values, strict=True):
            variable.assign(value)


def health_of(files: Sequence[InvertedFile]) -> dict[str, Any]:
    """Returns the numbers of `InvertedFileSampler.health`; `fitted_at` of the earliest fit."""
    sizes = np.concatenate([file.list_sizes() for file in files])
    return {
        "fitted_at": min(file.fitted_at() for file in files),
        "num_lists": sizes.size,
        "largest": int(sizes.max()),
        "median": float(np.median(sizes)),
        "smallest": int(sizes.min()),
        "empty": float(np.mean(sizes == 0)),
    }


def _scaled(uniform: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
    """Scales numbers in [0, 1) to int64 in [0, size)."""
    return tf.cast(uniform * tf.cast(sizes, tf.float64), tf.int64)
