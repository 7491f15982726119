"""The ops of a factored output layer; see `papers/factored/factored_output_ops.py`.

The formulas are those of `custom_ops/core/factored_output`, all in float64. A step computes the
new state first, checks it, and then writes all of it or nothing. Where errors cannot be raised,
a rejected step writes the old values, and its gradient is NaN.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_largeout.ops.stock import errors, factored_folds, tables
from tf_largeout.ops.stock.rows import order_of

_STEPS_OF_AN_INVERSE = 256  # how often the inverse of U is computed from U
_LEAST_PIVOT = 1e-12  # of U
# Added to pivots, because TensorFlow's decomposition ends with an error of its own if one is 0.
_ALMOST_ZERO = 1e-300
_FACTORS = ("mixing", "inverse", "offset", "total", "gram")
_DTYPES = {
    **dict.fromkeys([*_FACTORS, "folds"], tf.float64),
    "steps": tf.int64,
    "seen": tf.uint32,
}


class _Handles(NamedTuple):
    """The handles of the variables, in the order of the ops."""

    vectors: tf.Tensor
    mixing: tf.Tensor
    inverse: tf.Tensor
    offset: tf.Tensor
    total: tf.Tensor
    gram: tf.Tensor
    steps: tf.Tensor
    folds: tf.Tensor
    seen: tf.Tensor

    @property
    def width(self) -> int:
        return tables.static_shape(self.vectors)[1]

    @property
    def num_classes(self) -> int:
        return tables.static_shape(self.vectors)[0]

    def check(self) -> None:
        """Raises an InvalidArgumentError if shapes or dtypes do not match."""
        shape = tables.static_shape(self.vectors)
        if tables.dtype_of(self.vectors) not in (tf.float32, tf.float64) or (
            shape.rank != 2 or 0 in shape
        ):
            errors.fail(
                "vectors must be a float or double variable [num_classes, width] with a class "
                f"and a width of 1 or more, got {shape}"
            )
        for place, name in enumerate(self._fields):
            for other in self._fields[:place]:
                if getattr(self, name) is getattr(self, other):
                    errors.fail(f"{other} and {name} are the same variable")
        num_classes, width = shape
        square = [width, width]
        shapes = dict(zip(_FACTORS, (square, square, [width], [width], square), strict=True))
        for name, expected in {**shapes, "steps": [], "seen": [num_classes]}.items():
            tables.check(getattr(self, name), name, [_DTYPES[name]], expected)
        factored_folds.check(tables.static_shape(self.folds), width)

    def read(self, name: str) -> tf.Tensor:
        """Returns the value of a variable other than `vectors`."""
        value = tf.raw_ops.ReadVariableOp(resource=getattr(self, name), dtype=_DTYPES[name])
        return tf.ensure_shape(value, tables.static_shape(getattr(self, name)))

    def rows(self, ids: tf.Tensor, folds: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Returns rows `[n, width]`: as float64 with all folds, as stored, and `seen` `[n]`."""
        stored = tables.gather(self.vectors, ids)
        seen = tf.raw_ops.ResourceGather(resource=self.seen, indices=ids, dtype=tf.uint32)
        rows = factored_folds.applied(tf.cast(stored, tf.float64), folds, seen)
        return rows, stored, seen


class _Checks:
    """Checks of a step. Tensors that depend on `good` are computed after these checks."""

    def __init__(self) -> None:
        self.good = tf.constant(True)

    def require(self, good: tf.Tensor, numbers: tf.Tensor, message: str) -> None:
        """Raises an InvalidArgumentError on a CPU; elsewhere `good` becomes false."""
        good = errors.all_true(good, numbers, message, good)
        self.good &= tf.reduce_all(good)

    def finite(self, numbers: tf.Tensor, message: str) -> None:
        """Requires finite numbers `[batch, ...]`; `EXAMPLE` in the message is the first."""
        good, example = tf.math.is_finite(numbers), "an example"
        if tf.executing_eagerly():
            example = f"example {next(iter(np.argwhere(~good.numpy())), [0])[0]}"
        else:
            message = message.replace("{number}", "nan or infinite")
        self.require(good, numbers, message.replace("EXAMPLE", example))


class _Batch:
    """Features `[batch, width]` and targets `[batch, num_targets]`, after their checks."""

    def __init__(
        self, handles: _Handles, checks: _Checks, features: tf.Tensor, ids: tf.Tensor
    ) -> None:
        handles.check()
        width, ids = handles.width, tf.convert_to_tensor(ids, tf.int64)
        features = tf.convert_to_tensor(features)
        if features.shape.rank != 2 or features.shape[1] not in (width, width - 1):
            errors.fail(
                f"features must be [batch, dim] with dim {width}, as the vectors are wide, or "
                f"one less where the layer has a bias, got {features.shape}"
            )
        if ids.shape.rank != 2 or not ids.shape[:1].is_compatible_with(features.shape[:1]):
            errors.fail(
                "ids must be [batch, num_ids] with the batch of the features, "
                f"{features.shape[0]}, got {ids.shape}"
            )
        num_classes, self.dim = handles.num_classes, features.shape[1]
        message = (
            f"ids must be class ids in [0, {num_classes}), or -1 for padding, got {{number}}"
        )
        checks.require((ids >= -1) & (ids < num_classes), ids, message + " at {place}")
        checks.finite(
            features,
            "features must be finite, but those of EXAMPLE are not: one is {number}. If they "
            "were finite in earlier steps, lower the learning rate of the model or of the "
            "layer",
        )
        features = tf.where(checks.good, tf.cast(features, tf.float64), 0.0)
        features = tf.ensure_shape(features, [None, self.dim])
        self.features = tf.pad(features, [[0, 0], [0, width - self.dim]], constant_values=1)
        self.is_target = (ids >= 0) & checks.good
        self.ids = tf.where(self.is_target, ids, 0)

    def target_rows(self, handles: _Handles, folds: tf.Tensor) -> tf.Tensor:
        """Returns the rows of V of the targets, `[batch, num_targets, width]`."""
        rows = handles.rows(tf.reshape(self.ids, [-1]), folds)[0]
        shape = tf.concat([tf.shape(self.ids), [handles.width]], axis=0)
        return tf.reshape(rows, shape)


def largeout_factored_output_scores(
    features: tf.Tensor, ids: tf.Tensor, *handles: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    """Returns q, s, a, and the products for a step. Handles are those of `_Handles`."""
    state, checks = _Handles(*handles), _Checks()
    batch = _Batch(state, checks, features, ids)
    features = batch.features
    gram_features = tf.matmul(features, state.read("gram"))
    mixed = tf.matmul(features, state.read("mixing"), transpose_b=True)
    rows = batch.target_rows(state, state.read("folds"))
    offset = tf.linalg.matvec(features, state.read("offset"))
    a = tf.linalg.matvec(rows, mixed) + offset[:, tf.newaxis]
    q = tf.reduce_sum(features * gram_features, axis=1)
    s = tf.linalg.matvec(features, state.read("total"))
    nan = tf.constant(math.nan, tf.float64)
    q, s, a = (tf.where(checks.good, one, nan) for one in (q, s, a))
    return q, s, tf.where(batch.is_target, a, 0), gram_features, mixed, state.read("steps")


def largeout_factored_output_step(
    features: tf.Tensor,
    ids: tf.Tensor,
    by_q: tf.Tensor,
    by_s: tf.Tensor,
    by_a: tf.Tensor,
    gram_features: tf.Tensor,
    mixed_features: tf.Tensor,
    version: tf.Tensor,
    learning_rate: tf.Tensor,
    *handles: tf.Tensor,
    update: bool = True,
    min_pivot: float = 1e-4,
) -> tf.Tensor:
    """Makes a step; returns the gradient of the features, float64 `[batch, dim]`."""
    state, checks = _Handles(*handles), _Checks()
    if not 0 < min_pivot < math.inf:
        errors.fail(f"min_pivot must be a finite number above 0, got {min_pivot}")
    state.check()
    slopes = [tf.convert_to_tensor(one, tf.float64) for one in (by_q, by_s, by_a)]
    size, num_targets = tf.convert_to_tensor(ids).shape
    for name, one, shape in zip(
        ("by_q", "by_s", "by_a"), slopes, ([size], [size], [size, num_targets]), strict=True
    ):
        if not one.shape.is_compatible_with(shape):
            errors.fail(f"{name} must be of shape {shape}, got {one.shape}")
    rate = tf.convert_to_tensor(learning_rate, tf.float64)
    if update:
        _check_step(checks, version, state.read("steps"), rate)
    for name, one in zip(("by_q", "by_s", "by_a"), slopes, strict=True):
        checks.finite(
            one,
            f"{name} must be finite, but that of EXAMPLE is {{number}}, and so is the loss: "
            "lower the learning rate, or check the targets",
        )
    batch = _Batch(state, checks, features, ids)
    rate, *slopes = (tf.where(checks.good, one, 0.0) for one in (rate, *slopes))
    if update:
        log = state.read("folds")
        room = factored_folds.capacity(log) - factored_folds.count(log)
        is_full = (room < factored_folds.MOST_PER_STEP) & checks.good
        tf.cond(is_full, lambda: _take_all(state), lambda: True)
    step = _Step(state, batch, slopes, gram_features, mixed_features)
    if update:
        step.apply(checks, rate, min_pivot)
    nan = tf.constant(math.nan, tf.float64)
    return tf.where(checks.good, step.by_features, nan)[:, : batch.dim]


def _check_step(checks: _Checks, version: tf.Tensor, steps: tf.Tensor, rate: tf.Tensor) -> None:
    found = int(steps) if tf.executing_eagerly() else "another"
    version = tf.convert_to_tensor(version, tf.int64)
    checks.require(
        version == steps,
        version,
        "the layer's weights changed between its forward and its backward pass, from version "
        f"{{number}} to {found}: two of its outputs were trained in one step. Concatenate "
        "their inputs and call the layer once",
    )
    message = "learning_rate must be a finite number of at least 0, got {number}"
    checks.require(tf.math.is_finite(rate) & (rate >= 0), rate, message)


class _Step:
    """A step: the gradient of the features, `W'E`, and the new state.

    E is the gradient of all logits. It is not computed. `E = 2 W H Gamma + 1 sigma' + A`, where
    the columns of H are the features, and Gamma, sigma and A come from `slopes`.
    """

    def __init__(
        self,
        state: _Handles,
        batch: _Batch,
        slopes: list[tf.Tensor],
        gram_features: tf.Tensor,
        mixed_features: tf.Tensor,
    ) -> None:
        self._state, self._batch, self._mixed = state, batch, mixed_features
        self._by_q, self._by_s, by_a = slopes
        self._by_a = tf.where(batch.is_target, by_a, 0.0)
        self._folds = state.read("folds")
        self._old = {name: state.read(name) for name in _FACTORS}
        rows = batch.target_rows(state, self._folds)
        self._target_sums = tf.reduce_sum(self._by_a, axis=1)
        of_rows = tf.reduce_sum(self._by_a[..., tf.newaxis] * rows, axis=1)
        self._by_targets = tf.matmul(of_rows, self._old["mixing"])  # W'A
        self._by_targets += _outer(self._target_sums, self._old["offset"])
        self.by_features = 2 * self._by_q[:, tf.newaxis] * gram_features + self._by_targets
        self.by_features += _outer(self._by_s, self._old["total"])

    def apply(self, checks: _Checks, rate: tf.Tensor, min_pivot: float) -> None:
        """Checks and writes the new state; an empty batch changes nothing."""
        state, rate_text = self._state, float(rate) if tf.executing_eagerly() else "this"
        pivot, solved, inverse = self._solved(rate)
        checks.require(
            pivot >= min_pivot,
            pivot,
            f"a step with learning rate {rate_text} would make the layer's weights singular, "
            "so it was not applied: a pivot of I - 2 learning_rate H'H diag(by_q) is {number}, "
            f"but must be at least {min_pivot:g}. Lower the learning rate",
        )
        new = {**self._sums(rate), "mixing": self._mixing(rate), "inverse": inverse}
        ids, is_row, of_rows, of_features = self._merged(solved)
        new["gram"] = self._gram(rate, of_features)
        rows, stored, seen = state.rows(ids, self._folds)
        rows = tf.cast(rows - rate * of_rows, stored.dtype)
        for name, one in (
            ("vectors", rows),
            *((name, new[name]) for name in ("offset", "total", "mixing", "inverse", "gram")),
        ):
            checks.require(
                tf.reduce_all(tf.math.is_finite(one)),
                tf.reduce_sum(one),
                f"a step with learning rate {rate_text} would make numbers of the layer's "
                f"{name} infinite or NaN, so it was not applied. Lower the learning rate",
            )
        is_applied = checks.good & (tf.shape(self._by_q)[0] > 0)
        steps = state.read("steps")
        inverts = (steps + 1) % _STEPS_OF_AN_INVERSE == 0
        inverse = tf.cond(
            inverts & is_applied,
            lambda: _inverted(new["mixing"], new["inverse"]),
            lambda: new["inverse"],
        )
        new["inverse"] = tf.ensure_shape(inverse, self._old["inverse"].shape)
        old = {**self._old, "folds": self._folds, "steps": steps}
        mixing = tf.where(is_applied, new["mixing"], old["mixing"])
        inverse = tf.where(is_applied, new["inverse"], old["inverse"])
        new["mixing"], new["inverse"], new["folds"] = factored_folds.stabilised(
            mixing, inverse, self._folds, is_applied
        )
        new["steps"] = steps + 1
        for name, value in new.items():
            value = tf.where(is_applied, value, old[name])
            tf.raw_ops.AssignVariableOp(resource=getattr(state, name), value=value)
        writes = is_applied & tf.reduce_any(is_row)
        count = tf.cast(factored_folds.count(self._folds), tf.uint32)
        tables.scatter(state.vectors, ids, tf.where(writes, rows, stored))
        tables.scatter(state.seen, ids, tf.where(writes, count, seen))

    def _solved(self, rate: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the smallest pivot, H' times the inverse of the new U, and that inverse."""
        features, inverse = self._batch.features, self._old["inverse"]
        scaled = 2 * rate * self._by_q[:, tf.newaxis] * features

        def by_woodbury() -> tuple[tf.Tensor, ...]:
            small = tf.matmul(features, scaled, transpose_b=True)
            pivot, solved = _solve(small, tf.matmul(features, inverse))
            return pivot, solved, inverse + _product_of_columns(scaled, solved)

        def directly() -> tuple[tf.Tensor, ...]:
            pivot, solved = _solve(_product_of_columns(features, scaled), inverse)
            return pivot, tf.matmul(features, solved), solved

        is_small = tf.shape(features)[0] <= self._state.width
        pivot, solved, new = _cond(is_small, by_woodbury, directly)
        return (
            pivot,
            tf.ensure_shape(solved, features.shape),
            tf.ensure_shape(new, inverse.shape),
        )

    def _sums(self, rate: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the new omega and w_bar; equations 26 and 34."""
        features, old = self._batch.features, self._old
        of_offset = 2 * self._by_q * tf.linalg.matvec(features, old["offset"]) + self._by_s
        changes = {"offset": of_offset, "total": self._sums_of_slopes()}
        return {
            name: old[name] - rate * tf.linalg.matvec(features, one, transpose_a=True)
            for name, one in changes.items()
        }

    def _sums_of_slopes(self) -> tf.Tensor:
        """Returns the sums of the gradients of all logits, E'1."""
        of_total = tf.linalg.matvec(self._batch.features, self._old["total"])
        num_classes = float(self._state.num_classes)
        return 2 * self._by_q * of_total + num_classes * self._by_s + self._target_sums

    def _mixing(self, rate: tf.Tensor) -> tf.Tensor:
        scaled = 2 * rate * self._by_q[:, tf.newaxis] * self._mixed
        return self._old["mixing"] - _product_of_columns(scaled, self._batch.features)

    def _gram(self, rate: tf.Tensor, of_features: tf.Tensor) -> tf.Tensor:
        """Returns the new Q, `Q - rate (W'E H' + H E'W) + rate^2 H E'E H'`.

        `of_features` are the sums of features of each distinct class, A H'.
        """
        features = self._batch.features
        by_features = _product_of_columns(self.by_features, features)
        by_targets = _product_of_columns(self._by_targets, features)
        by_q = _product_of_columns(features, self._by_q[:, tf.newaxis] * features)
        of_slopes, of_all, of_targets = (
            tf.linalg.matvec(features, one, transpose_a=True)
            for one in (self._by_s, self._sums_of_slopes(), self._target_sums)
        )
        squares = 2 * tf.matmul(by_q, by_features) + _outer(of_slopes, of_all)
        squares += 2 * tf.matmul(by_targets, by_q, transpose_a=True)
        squares += _outer(of_targets, of_slopes) + _product_of_columns(of_features, of_features)
        half = rate * by_features - 0.5 * rate * rate * squares
        return self._old["gram"] - (half + tf.transpose(half))

    def _merged(self, solved: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Returns distinct targets, and for each the sums of `solved` and of the features.

        Returns `(ids, is_row, sums, sums)` with one place per target. Places without a row
        repeat the first one, except for the sums of features, which are 0 there.
        """
        flat = tf.reshape(tf.where(self._batch.is_target, self._batch.ids, -1), [-1])
        order, width = order_of(flat), self._state.width
        both = tf.concat([solved, self._batch.features], axis=1)
        both = tf.reshape(self._by_a[..., tf.newaxis] * both[:, tf.newaxis], [-1, 2 * width])
        both = tf.gather(both, order.places)
        sums = tf.math.unsorted_segment_sum(both, order.segments, tf.size(flat))
        ids, is_row = order.ids, order.is_row
        first = tf.reduce_sum(tf.where(is_row, ids, 0)[:1])
        of_rows = tf.where(is_row[:, tf.newaxis], sums, sums[:1])[:, :width]
        of_features = tf.where(is_row[:, tf.newaxis], sums[:, width:], 0.0)
        return tf.where(is_row, ids, first), is_row, of_rows, of_features


def largeout_factored_output_take_folds(*handles: tf.Tensor) -> tf.Operation | None:
    """Applies all folds to all rows of V in place, if there are folds."""
    state = _Handles(*handles)
    state.check()
    has_folds = state.read("folds")[0, 0] != 0
    done = tf.cond(has_folds, lambda: _take_all(state), lambda: True)
    return None if tf.executing_eagerly() else done.op


def largeout_factored_output_vectors(
    vectors: tf.Tensor, folds: tf.Tensor, seen: tf.Tensor
) -> tf.Tensor:
    """Returns rows of V after all folds, as a copy if there are folds."""
    factored_folds.check(folds.shape, vectors.shape[1])
    return tf.cond(
        folds[0, 0] != 0,
        lambda: factored_folds.applied_in_blocks(vectors, folds, seen),
        lambda: vectors,
    )


def _take_all(state: _Handles) -> tf.Tensor:
    """Applies all folds to all rows in place, block by block, and clears the log."""
    folds, size = state.read("folds"), factored_folds.ROWS_AT_ONCE

    def take(first: tf.Tensor) -> tuple[tf.Tensor]:
        ids = tf.range(first, tf.minimum(first + size, state.num_classes), dtype=tf.int64)
        rows, stored, _ = state.rows(ids, folds)
        written = tables.scatter(state.vectors, ids, tf.cast(rows, stored.dtype))
        with tf.control_dependencies([] if written is None else [written]):
            return (tf.identity(first) + size,)

    going = lambda first: first < state.num_classes  # noqa: E731
    (end,) = tf.while_loop(going, take, (tf.constant(0, tf.int64),), parallel_iterations=1)
    with tf.control_dependencies([] if tf.executing_eagerly() else [end]):
        seen = tf.zeros([state.num_classes], tf.uint32)
        tf.raw_ops.AssignVariableOp(resource=state.seen, value=seen)
        tf.raw_ops.AssignVariableOp(resource=state.folds, value=tf.zeros_like(folds))
    return tf.constant(True)


def _solve(matrix: tf.Tensor, right: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Solves `(I - matrix) x = right`; returns the smallest pivot and x."""
    size = tf.shape(matrix)[0]
    almost_zero = tf.constant(_ALMOST_ZERO, tf.float64)
    factors, order = tf.linalg.lu(
        tf.eye(size, dtype=tf.float64) - matrix + tf.eye(size, dtype=tf.float64) * almost_zero
    )
    pivot = tf.reduce_min(tf.abs(tf.linalg.diag_part(factors)))
    pivot = tf.where(tf.reduce_all(tf.math.is_finite(factors)), pivot, math.nan)
    right = tf.linalg.triangular_solve(
        tf.linalg.set_diag(factors, tf.ones([size], tf.float64)), tf.gather(right, order)
    )
    return pivot, tf.linalg.triangular_solve(factors, right, lower=False)


def _inverted(matrix: tf.Tensor, otherwise: tf.Tensor) -> tf.Tensor:
    """Returns the inverse of a matrix, or `otherwise` if it is almost singular."""
    one = tf.eye(tf.shape(matrix)[0], dtype=tf.float64)
    pivot, inverse = _solve(one - matrix, one)
    is_good = (pivot >= _LEAST_PIVOT) & tf.reduce_all(tf.math.is_finite(inverse))
    return tf.where(is_good, inverse, otherwise)


def _cond(condition: tf.Tensor, *branches: Callable[[], Any]) -> Any:
    """Like `tf.cond`, without an operation if the condition is known."""
    known = tf.get_static_value(condition)
    return tf.cond(condition, *branches) if known is None else branches[not known]()


def _outer(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    return left[:, tf.newaxis] * right


def _product_of_columns(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Returns `[width, width]` for matrices `[n, width]`."""
    return tf.matmul(left, right, transpose_a=True)
