"""Merging of gradient rows and optimizer updates of rows; see `ops/row_ops.py`.

All shapes are static: n gradient rows are merged into n rows. Those of the distinct ids come
first, in ascending order. Then come rows of 0 with the highest id, so that Keras's optimizers,
observers of rows and clipping need no special case. A gradient row with the id -1 is ignored.
If all rows are ignored, all merged ids are -1, and updates skip them.

Gradients of equal ids are summed in any order. An id out of range is an error on a CPU. In a
compiled step, or for ids on a GPU, errors cannot be raised, and the update then changes no row.
With ids on the host and values on a GPU, it also changes no row if a value is not finite.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tf_largeout.ops import places
from tf_largeout.ops.stock import errors, philox, tables

_PADDING = -1
_MOST_FINITE = float(tf.bfloat16.max)
_HIGH_HALF = 2**32 - 2**16


def largeout_merge_rows(values: tf.Tensor, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Sums rows `[n, ...]` of equal ids `[n]`; returns n rows and ids."""
    merged = _merge(values, ids)
    with places.scope_of(merged.ids):
        highest = tf.reduce_max(tf.cast(merged.ids, tf.int64))
        return merged.values, tf.where(
            merged.is_row, merged.ids, tf.cast(highest, merged.ids.dtype)
        )


class _Merged(NamedTuple):
    """Merged rows; `is_row` is false where `values` are 0 and `ids` are -1."""

    values: tf.Tensor
    ids: tf.Tensor
    is_row: tf.Tensor


def _merge(values: tf.Tensor, ids: tf.Tensor) -> _Merged:
    values, ids = tf.convert_to_tensor(values, tf.float32), tf.convert_to_tensor(ids)
    if not values.shape[:1].is_compatible_with(ids.shape):
        errors.fail(
            f"values must have one row per id, but are {values.shape} for {ids.shape[0]} ids"
        )
    order = order_of(ids)
    count = tf.size(ids)
    sums = tf.math.unsorted_segment_sum(tf.gather(values, order.places), order.segments, count)
    values = tf.where(_column(order.is_row, sums), sums, 0.0)
    return _Merged(values, order.ids, order.is_row)


class Order(NamedTuple):
    """How rows are merged: row `places[i]` is added to row `segments[i]` of the result.

    `ids` and `is_row` are those of `_Merged`. If the ids are on the host, all four tensors are
    there, so that a step on a GPU does not wait for them.
    """

    places: tf.Tensor
    segments: tf.Tensor
    ids: tf.Tensor
    is_row: tf.Tensor


def order_of(ids: tf.Tensor) -> Order:
    """Returns how the rows of ids `[n]` are merged; the row of an id of -1 is left out."""
    message, dtype = "ids[{index}] = {number} is not a row: expected 0 <= id", ids.dtype
    with places.scope_of(ids):
        if places.first_gpu():  # it has int32 in host memory
            ids = tf.cast(ids, tf.int64)
        ids = errors.all_true(ids >= _PADDING, ids, message, ids)
        keys = tf.where(ids != _PADDING, ids, ids.dtype.max)  # padding comes last
        order = tf.argsort(keys, stable=True)
        keys = tf.gather(keys, order)
        is_first = tf.concat([tf.ones_like(keys[:1], tf.bool), keys[1:] != keys[:-1]], axis=0)
        # In int64, which a GPU computes in its own memory, unlike int32.
        segments = tf.cumsum(tf.cast(is_first, tf.int64)) - 1
        unused = tf.fill(tf.shape(ids), tf.constant(ids.dtype.max, ids.dtype))
        merged = tf.tensor_scatter_nd_update(unused, segments[:, tf.newaxis], keys)
        is_row = merged != ids.dtype.max
        merged = tf.cast(tf.where(is_row, merged, _PADDING), dtype)
        return Order(order, segments, merged, is_row)


def largeout_check_row_ids(ids: tf.Tensor, num_rows: tf.Tensor) -> tf.Tensor:
    """Returns ids `[n]`. An id out of range is an error where errors can be raised."""
    ids = tf.convert_to_tensor(ids)
    static = errors.static_number(num_rows)
    limit = "the number of rows" if static is None else static
    message = f"ids[{{index}}] = {{number}} is not a row: expected 0 <= id < {limit}"
    with places.scope_of(ids):  # a known number is a constant of the same place
        end = tf.cast(num_rows if static is None else static, ids.dtype)
        inside = (ids >= _PADDING) & (ids < end)
    return errors.all_true(inside, ids, message, ids)


def largeout_row_adam(
    variable: tf.Tensor,
    momentum: Sequence[tf.Tensor],
    velocity: tf.Tensor,
    last_step: Sequence[tf.Tensor],
    values: tf.Tensor,
    ids: tf.Tensor,
    step: tf.Tensor,
    step_size: tf.Tensor,
    beta_1: tf.Tensor,
    beta_2: tf.Tensor,
    epsilon: tf.Tensor,
    weight_decay: tf.Tensor,
    rounding: Sequence[tf.Tensor],
) -> tf.Operation | None:
    """See `row_adam` in `ops/row_ops.py`."""
    step_size, epsilon, weight_decay = _rates(step_size, epsilon, weight_decay)
    beta_1, beta_2 = errors.scalars([beta_1, beta_2], tf.float64, "a hyperparameter")
    (step,) = errors.scalars([step], tf.int64, "a hyperparameter")
    if max(len(momentum), len(last_step)) > 1:
        errors.fail("momentum and last_step must be one variable each or none")
    update = _Update(variable, values, ids, rounding)
    handles = [*momentum, velocity]
    old = [update.read(slot) for slot in handles]
    new = list(old)
    betas = [beta_1] * len(momentum) + [beta_2]
    slots = []
    if last_step:
        steps = update.read(last_step[0], tf.int64, 1)
        slots.append((last_step[0], steps, tf.fill(tf.shape(steps), step)))
        gap = tf.cast(step - steps - 1, tf.float64)
        decays = [tf.cast(tf.pow(beta, gap), tf.float32) for beta in betas]
        new = [_column(decay, one) * one for decay, one in zip(decays, new, strict=True)]
    gradient = update.gradient
    targets = [gradient] * len(momentum) + [tf.square(gradient)]
    for place, (beta, target) in enumerate(zip(betas, targets, strict=True)):
        new[place] += (target - new[place]) * tf.cast(1 - beta, tf.float32)
    mean = new[0] if momentum else gradient
    change = -mean * step_size / (tf.sqrt(new[-1]) + epsilon)
    slots += zip(handles, old, new, strict=True)
    return update.apply(change, weight_decay, slots)


def largeout_row_adagrad(
    variable: tf.Tensor,
    accumulator: tf.Tensor,
    values: tf.Tensor,
    ids: tf.Tensor,
    learning_rate: tf.Tensor,
    epsilon: tf.Tensor,
    weight_decay: tf.Tensor,
    rounding: Sequence[tf.Tensor],
) -> tf.Operation | None:
    """See `row_adagrad` in `ops/row_ops.py`."""
    learning_rate, epsilon, weight_decay = _rates(learning_rate, epsilon, weight_decay)
    update = _Update(variable, values, ids, rounding)
    old = update.read(accumulator)
    new = old + tf.square(update.gradient)
    change = -learning_rate * update.gradient / tf.sqrt(new + epsilon)
    return update.apply(change, weight_decay, [(accumulator, old, new)])


def largeout_row_rowwise_adagrad(
    variable: tf.Tensor,
    accumulator: tf.Tensor,
    values: tf.Tensor,
    ids: tf.Tensor,
    learning_rate: tf.Tensor,
    epsilon: tf.Tensor,
    weight_decay: tf.Tensor,
    rounding: Sequence[tf.Tensor],
) -> tf.Operation | None:
    """See `row_rowwise_adagrad` in `ops/row_ops.py`."""
    learning_rate, epsilon, weight_decay = _rates(learning_rate, epsilon, weight_decay)
    update = _Update(variable, values, ids, rounding)
    gradient = update.gradient
    axes = list(range(1, gradient.shape.rank))
    old = update.read(accumulator, rank=1)
    new = old + tf.reduce_mean(tf.square(gradient), axes)
    change = -gradient * _column(learning_rate / tf.sqrt(new + epsilon), gradient)
    return update.apply(change, weight_decay, [(accumulator, old, new)])


def largeout_row_momentum(
    variable: tf.Tensor,
    momentum: Sequence[tf.Tensor],
    values: tf.Tensor,
    ids: tf.Tensor,
    learning_rate: tf.Tensor,
    decay: tf.Tensor,
    weight_decay: tf.Tensor,
    rounding: Sequence[tf.Tensor],
    nesterov: bool = False,
) -> tf.Operation | None:
    """See `row_momentum` in `ops/row_ops.py`."""
    learning_rate, decay, weight_decay = _rates(learning_rate, decay, weight_decay)
    update = _Update(variable, values, ids, rounding)
    change, slots = -learning_rate * update.gradient, []
    if momentum:
        old = update.read(momentum[0])
        new = old * decay + change
        slots.append((momentum[0], old, new))
        change = new * decay + change if nesterov else new
    return update.apply(change, weight_decay, slots)


def _rates(*values: tf.Tensor) -> list[tf.Tensor]:
    return errors.scalars(values, tf.float32, "a hyperparameter")


class _Update:
    """The distinct rows of one update: their ids and summed gradients.

    Places without a row repeat the first row, with equal values, because a write cannot skip a
    place. If there is no row at all, or an id is out of range, the old values are written.

    Attributes:
        gradient: float32 `[n, ...]`, the gradient of each place.
    """

    def __init__(
        self,
        variable: tf.Tensor,
        values: tf.Tensor,
        ids: tf.Tensor,
        rounding: Sequence[tf.Tensor],
    ):
        tables.check(variable, "the variable", [tf.bfloat16 if rounding else tf.float32])
        self._shape = tables.static_shape(variable)
        for one in rounding:
            errors.check_shape(one, "rounding", 2)
        values, ids = tf.convert_to_tensor(values, tf.float32), tf.convert_to_tensor(ids)
        errors.check_shape(values, "values", *ids.shape, *self._shape[1:])
        num_rows = tables.num_rows(variable)
        sums, ids, self._is_row = _merge(values, largeout_check_row_ids(ids, num_rows))
        self._rounding = rounding
        self._variable = variable
        with places.scope_of(ids):
            self._ids = tf.where(self._is_row, ids, tf.maximum(ids[:1], 0))
            inside = (self._ids >= 0) & (self._ids < tf.cast(num_rows, ids.dtype))
            self._may_write = tf.reduce_any(self._is_row) & tf.reduce_all(inside)
        self.gradient = self._repeat_first(sums)
        if places.first_gpu() and places.are_on_host(ids):  # values are not checked elsewhere
            self._may_write &= tf.reduce_all(tf.math.is_finite(self.gradient))

    def read(
        self, slot: tf.Tensor, dtype: tf.DType = tf.float32, rank: int | None = None
    ) -> tf.Tensor:
        """Returns the rows of a slot, which has the shape of the variable, up to `rank`."""
        tables.check(slot, "an optimizer slot", [dtype], self._shape[:rank])
        return tables.gather(slot, self._ids)

    def apply(
        self,
        change: tf.Tensor,
        weight_decay: tf.Tensor,
        slots: Sequence[tuple[tf.Tensor, tf.Tensor, tf.Tensor]],
    ) -> tf.Operation | None:
        """Decays the rows of the variable, adds `change`, and sets the rows of the slots.

        `slots` are handles with their old and new rows.
        """
        old = tables.gather(self._variable, self._ids)
        rows = tf.cast(old, tf.float32)
        rows += change - rows * weight_decay
        if self._rounding:
            rows = self._rounded(rows)
        writes = []
        tables.check_distinct(self._variable, *(slot for slot, _, _ in slots))
        for table, before, after in [*slots, (self._variable, old, rows)]:
            after = tf.where(self._may_write, after, before)
            writes.append(tables.scatter(table, self._ids, after))
        return tf.group(*writes)

    def _rounded(self, rows: tf.Tensor) -> tf.Tensor:
        """Rounds rows to bfloat16 at random; see `core/base/bfloat16_rows.h`."""
        flat = tf.reshape(rows, [tf.shape(rows)[0], -1])
        noise = philox.bits_of_rows(self._rounding[0], self._ids, tf.shape(flat)[1])
        bits = tf.bitcast(flat, tf.uint32) + noise
        bits = tf.bitwise.bitwise_and(bits, tf.constant(_HIGH_HALF, tf.uint32))
        rounded = tf.clip_by_value(tf.bitcast(bits, tf.float32), -_MOST_FINITE, _MOST_FINITE)
        rounded = tf.where(abs(flat) > _MOST_FINITE, tf.sign(flat) * _MOST_FINITE, rounded)
        rounded = tf.where(tf.math.is_finite(flat), rounded, flat)
        return tf.cast(tf.reshape(rounded, tf.shape(rows)), tf.bfloat16)

    def _repeat_first(self, rows: tf.Tensor) -> tf.Tensor:
        return tf.where(_column(self._is_row, rows), rows, rows[:1])


def _column(vector: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Reshapes `[n]` to `[n, 1, ...]`, of the rank of `like`."""
    return tf.reshape(vector, [-1] + [1] * (like.shape.rank - 1))
