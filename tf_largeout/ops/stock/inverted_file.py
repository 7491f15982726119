"""Inverted files; see `ops/inverted_file_ops.py` and `custom_ops/ops/inverted_file_ops.cc`.

The state has the format of the op library, so each can search what the other has fitted. A
search has static shapes, so XLA can compile it. Fits and reassignments run in NumPy on the
host, which XLA cannot compile.
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tf_largeout.ops.stock import errors, inverted_lists, philox, tables
from tf_largeout.ops.stock.inverted_lists import (
    CODES_TOGETHER,
    GROUP_ROWS,
    MOST_OF_ROW,
)

State = Sequence[tf.Tensor]
Update = Callable[[inverted_lists.Lists, np.ndarray], None]

_PARTS = ("means", "mean_bias", "offsets", "ids", "codes", "scales", "schedule")
_DTYPES = (
    tf.float32,
    tf.float32,
    tf.uint32,
    tf.uint32,
    tf.uint8,
    tf.float32,
    tf.int64,
)
_QUERIES_AT_ONCE = 1024
_NUMBERS_AT_ONCE = 2**23
# Sums of products of codes are exact in float32 up to this width.
_EXACT_WIDTH = 2048
_LAST_ID = 2**32 - 1
_NOTHING = tf.int64.min


def largeout_inverted_file_search(
    features: tf.Tensor,
    means: tf.Tensor,
    mean_bias: tf.Tensor,
    offsets: tf.Tensor,
    ids: tf.Tensor,
    codes: tf.Tensor,
    scales: tf.Tensor,
    k: tf.Tensor,
    num_probes: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns scores and ids `[batch, k]`. A piece of queries at a time limits the memory."""
    errors.positive(num_probes=num_probes)
    handles = [means, mean_bias, offsets, ids, codes, scales]
    _check_shapes([tables.static_shape(one) for one in handles])
    features = tf.convert_to_tensor(features, tf.float32)
    dim = tables.static_shape(means)[1]
    if not features.shape.is_compatible_with([None, dim]):
        errors.fail(f"features must be [batch, {dim}], got {errors.sizes(features)}")
    k = tf.convert_to_tensor(k, tf.int64)
    static_k = errors.static_number(k)
    message = "k must be at least 1 and less than 2^31, got {number}"
    k = errors.all_true((k >= 1) & (k < 2**31), k, message, k)
    k = tf.cast(k if static_k is None else static_k, tf.int32)
    search = _Search([_read(*one) for one in zip(handles, _DTYPES, strict=False)], num_probes)
    num_queries, (batch, dim) = features.shape[0], tf.unstack(tf.shape(features))
    size = tf.clip_by_value(batch, 1, _QUERIES_AT_ONCE)
    pieces = tf.maximum(-(-batch // size), 1)
    features = tf.pad(features, [[0, pieces * size - batch], [0, 0]])
    found = tf.map_fn(
        lambda some: search.best(some, k),
        tf.reshape(features, [pieces, size, dim]),
        fn_output_signature=tf.TensorSpec([None, None], tf.int64),
        parallel_iterations=1,
    )
    scores, found_ids = unpacked(tf.reshape(found, [pieces * size, k])[:batch])
    shape = [num_queries, static_k]
    return tf.ensure_shape(scores, shape), tf.ensure_shape(found_ids, shape)


class _Search:
    """Searches an inverted file, given by the values of its variables."""

    def __init__(self, state: State, num_probes: int) -> None:
        means, mean_bias, offsets, ids, codes, scales = state
        self._means, self._mean_bias = means, mean_bias
        self._num_lists, self._dim = means.shape
        self._num_probes = min(num_probes, self._num_lists)
        offsets = tf.bitcast(offsets, tf.int32)
        self._num_classes, self._ids = ids.shape[0], tf.bitcast(ids, tf.int32)
        good = (offsets[:1] == 0) & tf.reduce_all(offsets[1:] >= offsets[:-1])
        good &= (offsets[-1] == 0) | (offsets[-1] == self._num_classes)
        message = inverted_lists.WRONG_OFFSETS.format(self._num_classes)
        self._offsets = errors.all_true(good, offsets[:1], message, offsets)
        # 16 rows of words, each of 4 codes. As int8, a code minus 128 is its number.
        words = tf.bitcast(codes, tf.int32)
        flip = int(np.array([0x80] * 4, np.uint8).view(np.int32)[0])
        self._words, self._flip = words, tf.constant(flip, tf.int32)
        self._scales = scales
        self._width = words.shape[1] * CODES_TOGETHER

    def best(self, features: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
        """Returns the scores and ids of the best classes, packed, int64 `[batch, k]`."""
        queries, query_scales = quantized(
            features, inverted_lists.most_of_query(self._dim), self._width
        )
        lists = self._chosen_lists(queries, query_scales)
        begins = tf.gather(self._offsets, tf.maximum(lists, 0))
        ends = tf.gather(self._offsets, tf.maximum(lists, 0) + 1)
        ends = tf.where(lists >= 0, ends, begins)
        firsts = begins // GROUP_ROWS
        num_groups = tf.where(ends > begins, -(-ends // GROUP_ROWS) - firsts, 0)
        slots = tf.cumsum(num_groups, axis=1)  # groups of the lists so far
        batch = tf.shape(features)[0]
        step = tf.maximum(_NUMBERS_AT_ONCE // (batch * GROUP_ROWS * self._width), 1)
        step = tf.minimum(step, self._words.shape[0])

        def add(slot: tf.Tensor, best: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            places = tf.tile(slot + tf.range(step)[tf.newaxis], [batch, 1])
            probes = tf.searchsorted(slots, places, side="right")
            exists = probes < self._num_probes
            probes = tf.minimum(probes, self._num_probes - 1)
            before = firsts - (slots - num_groups)
            starts, *limits = (
                tf.where(exists, tf.gather(each, probes, batch_dims=1), 0)
                for each in (before, begins, ends)
            )
            groups = tf.where(exists, starts + places, 0)
            found = self._scored(queries, query_scales, groups, limits)
            keys = tf.concat([best, found], axis=1)
            best = tf.ensure_shape(tf.math.top_k(keys, k).values, best.shape)
            return slot + step, best

        last = tf.reduce_max(slots)
        nothing = tf.fill([batch, k], tf.constant(_NOTHING, tf.int64))
        going = lambda slot, _: slot < last  # noqa: E731
        return tf.while_loop(going, add, (0, nothing), parallel_iterations=1)[1]

    def _chosen_lists(self, queries: tf.Tensor, query_scales: tf.Tensor) -> tf.Tensor:
        """Returns the lists to search, int32 `[batch, num_probes]`, best first; -1 for none."""
        means, mean_scales = quantized(self._means, MOST_OF_ROW, self._width)
        scores = _products(queries, means)
        scores *= query_scales[:, tf.newaxis] * _finite_or_zero(mean_scales)
        usable = tf.math.is_finite(mean_scales) & tf.math.is_finite(self._mean_bias)
        scores += tf.where(usable, self._mean_bias, -float("inf"))
        scores = tf.where(scores > -float("inf"), scores, -float("inf"))  # NaN is never found
        scores, lists = tf.math.top_k(scores, self._num_probes)
        sizes = tf.gather(self._offsets[1:] - self._offsets[:-1], lists)
        # A query searches no further lists once it has as many members as its probes have on
        # average.
        enough = self._num_probes * -(-self._offsets[-1] // self._num_lists)
        before = tf.cumsum(sizes, axis=1, exclusive=True)
        return tf.where((scores > -float("inf")) & (before < enough), lists, -1)

    def _scored(
        self,
        queries: tf.Tensor,
        query_scales: tf.Tensor,
        groups: tf.Tensor,
        limits: Sequence[tf.Tensor],
    ) -> tf.Tensor:
        """Returns the packed scores of the members of groups `[batch, n]`; `[batch, 16 n]`."""
        shape = tf.concat([tf.shape(groups), [GROUP_ROWS]], axis=0)
        words = tf.bitwise.bitwise_xor(tf.gather(self._words, groups), self._flip)
        rows = tf.bitcast(tf.transpose(words, [0, 1, 3, 2]), tf.int8)
        rows = tf.reshape(rows, [shape[0], -1, self._width])
        scores = tf.reshape(_products(queries, rows), shape)
        scales, biases = tf.unstack(tf.gather(self._scales, groups), axis=2)
        scores = scores * (scales * query_scales[:, tf.newaxis, tf.newaxis]) + biases
        members = groups[..., tf.newaxis] * GROUP_ROWS + tf.range(GROUP_ROWS)
        begins, ends = (limit[..., tf.newaxis] for limit in limits)
        found = (members >= begins) & (members < ends) & (scores > -float("inf"))
        ids = tf.gather(self._ids, tf.minimum(members, self._num_classes - 1))
        found &= (ids >= 0) & (ids < self._num_classes)
        return tf.reshape(tf.where(found, packed(scores, ids), _NOTHING), [shape[0], -1])


def _products(queries: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Returns sums of products of whole numbers, rounded once, to float32.

    Args:
        queries: float32 `[batch, width]`.
        rows: `[num_rows, width]` or `[batch, num_rows, width]`.
    """
    exact = tf.float32 if rows.shape[-1] <= _EXACT_WIDTH else tf.float64
    queries, rows = tf.cast(queries, exact), tf.cast(rows, exact)
    if rows.shape.rank == 2:
        return tf.cast(tf.matmul(queries, rows, transpose_b=True), tf.float32)
    return tf.cast(tf.linalg.matvec(rows, queries), tf.float32)


def quantized(rows: tf.Tensor, most: int, width: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Like `inverted_lists.quantized`, with zeros at the end up to `width`."""
    largest = tf.maximum(tf.reduce_max(tf.abs(rows), axis=1), 0.0)  # the width may be 0
    largest = tf.where(tf.reduce_all(tf.math.is_finite(rows), axis=1), largest, float("inf"))
    factor = most / largest
    usable = (factor > 0) & (factor < 1e30)
    numbers = tf.round(rows * tf.where(usable, factor, 0.0)[:, tf.newaxis])
    numbers = tf.where(usable[:, tf.newaxis], numbers, 0.0)
    scales = tf.where(usable, largest / most, largest * 0)
    return tf.pad(numbers, [[0, 0], [0, width - rows.shape[1]]]), scales


def packed(scores: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Packs a score and an id into an int64; a better result is a larger number."""
    bits = tf.bitcast(tf.where(scores == 0, 0.0, scores), tf.int32)
    largest = tf.constant(tf.int32.max, tf.int32)
    ordered = tf.where(bits < 0, tf.bitwise.bitwise_xor(bits, largest), bits)
    return tf.cast(ordered, tf.int64) * 2**32 + (_LAST_ID - tf.cast(ids, tf.int64))


def unpacked(packed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the scores and ids of `packed`; -inf and -1 for nothing."""
    exists = packed != _NOTHING
    high = tf.bitwise.right_shift(packed, tf.constant(32, tf.int64))
    ordered = tf.cast(high, tf.int32)
    ids = _LAST_ID - (packed - high * 2**32)
    largest = tf.constant(tf.int32.max, tf.int32)
    bits = tf.where(ordered < 0, tf.bitwise.bitwise_xor(ordered, largest), ordered)
    scores = tf.where(exists, tf.bitcast(bits, tf.float32), -float("inf"))
    return scores, tf.where(exists, ids, tf.constant(-1, tf.int64))


def _finite_or_zero(numbers: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.math.is_finite(numbers), numbers, 0.0)


def largeout_inverted_file_fit(
    embeddings: tf.Tensor,
    bias: Sequence[tf.Tensor],
    means: tf.Tensor,
    mean_bias: tf.Tensor,
    offsets: tf.Tensor,
    ids: tf.Tensor,
    codes: tf.Tensor,
    scales: tf.Tensor,
    schedule: tf.Tensor,
    unit_length: bool = False,
) -> tf.Operation | None:
    """Fits new lists in place."""
    handles = [means, mean_bias, offsets, ids, codes, scales, schedule]
    tables.check_distinct(embeddings, *bias, *handles)
    _check_shapes([tables.static_shape(one) for one in handles])
    fit = inverted_lists.Lists.fit
    return _write(handles, _updated_variables(embeddings, bias, handles, unit_length, fit))


def largeout_inverted_file_upkeep(
    embeddings: tf.Tensor,
    bias: Sequence[tf.Tensor],
    means: tf.Tensor,
    mean_bias: tf.Tensor,
    offsets: tf.Tensor,
    ids: tf.Tensor,
    codes: tf.Tensor,
    scales: tf.Tensor,
    schedule: tf.Tensor,
    interval: int,
    rows_a_step: int,
    unit_length: bool = False,
) -> tf.Operation | None:
    """Makes one step of upkeep in place. Reads the rows only if an update is due."""
    errors.positive(interval=interval, rows_a_step=rows_a_step)
    handles = [means, mean_bias, offsets, ids, codes, scales, schedule]
    tables.check_distinct(embeddings, *bias, *handles)
    _check_shapes([tables.static_shape(one) for one in handles])
    numbers = _read(schedule, tf.int64)
    step, fitted_at = tf.unstack(numbers)
    has_lists = (fitted_at >= 0) & (tf.bitcast(_read(offsets, tf.uint32)[-1], tf.int32) > 0)
    age = step - fitted_at
    due = ~has_lists | ((age > 0) & (age % interval == 0)) | (step < 0)

    def update() -> tf.Tensor:
        keep_up = _kept_up(interval, rows_a_step)
        new = _updated_variables(embeddings, bias, handles, unit_length, keep_up)
        return _done(_write(handles, new))

    def count() -> tf.Tensor:
        return _done(_write([schedule], [numbers + [1, 0]]))

    if tf.executing_eagerly():
        update() if due else count()
        return None
    return tf.cond(due, update, count).op


def largeout_inverted_file_fitted(
    embeddings: tf.Tensor,
    bias: Sequence[tf.Tensor],
    means: tf.Tensor,
    mean_bias: tf.Tensor,
    offsets: tf.Tensor,
    ids: tf.Tensor,
    codes: tf.Tensor,
    scales: tf.Tensor,
    schedule: tf.Tensor,
    unit_length: bool = False,
) -> State:
    """Returns the state after a fit."""
    state = [means, mean_bias, offsets, ids, codes, scales, schedule]
    return _updated(embeddings, bias, state, unit_length, inverted_lists.Lists.fit)


def largeout_inverted_file_kept_up(
    embeddings: tf.Tensor,
    bias: Sequence[tf.Tensor],
    means: tf.Tensor,
    mean_bias: tf.Tensor,
    offsets: tf.Tensor,
    ids: tf.Tensor,
    codes: tf.Tensor,
    scales: tf.Tensor,
    schedule: tf.Tensor,
    interval: int,
    rows_a_step: int,
    unit_length: bool = False,
) -> State:
    """Returns the state after a step of upkeep."""
    errors.positive(interval=interval, rows_a_step=rows_a_step)
    state = [means, mean_bias, offsets, ids, codes, scales, schedule]
    return _updated(embeddings, bias, state, unit_length, _kept_up(interval, rows_a_step))


def _kept_up(interval: int, rows_a_step: int) -> Update:
    return lambda lists, sample: lists.keep_up(interval, rows_a_step, sample)


def _updated_variables(
    embeddings: tf.Tensor,
    bias: Sequence[tf.Tensor],
    handles: State,
    unit_length: bool,
    update: Update,
) -> State:
    """Like `_updated`, for handles of variables."""
    tables.check(embeddings, "embeddings", [tf.float32, tf.bfloat16])
    rows = _read(embeddings, tables.dtype_of(embeddings), tables.static_shape(embeddings))
    biases = [_read(one, tf.float32) for one in bias]
    state = [_read(*one) for one in zip(handles, _DTYPES, strict=True)]
    return _updated(rows, biases, state, unit_length, update)


def _updated(
    embeddings: tf.Tensor,
    bias: Sequence[tf.Tensor],
    state: State,
    unit_length: bool,
    update: Update,
) -> State:
    """Returns the state after an update of its lists, in NumPy on the host."""
    embeddings = tf.convert_to_tensor(embeddings)
    state = [tf.convert_to_tensor(*one) for one in zip(state, _DTYPES, strict=True)]
    _check_shapes([one.shape for one in state])
    num_lists, dim = state[0].shape
    num_classes = state[3].shape[0]
    if embeddings.shape != (num_classes, dim):
        errors.fail(
            f"embeddings must be [{num_classes}, {dim}], the shape that the inverted file was "
            f"made for, got {errors.sizes(embeddings)}"
        )
    sample = _sample(num_classes, num_lists, state[-1][0])

    def function(rows: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
        *biases, sample = others[:-7]
        lists = inverted_lists.Lists(
            rows, biases[0] if biases else None, others[-7:], unit_length
        )
        update(lists, sample)
        return list(lists.state())

    arguments = [embeddings, *bias, sample, *state]
    if tf.executing_eagerly():
        try:
            arrays = function(*(one.numpy() for one in map(tf.convert_to_tensor, arguments)))
        except ValueError as error:
            errors.fail(str(error))
        return [tf.constant(array) for array in arrays]
    new = tf.numpy_function(function, arguments, _DTYPES)
    return [tf.ensure_shape(one, old.shape) for one, old in zip(new, state, strict=True)]


def _sample(num_classes: int, num_lists: int, step: tf.Tensor) -> tf.Tensor:
    """Draws the rows for k-means: one from each of ranges of about equal length."""
    count = inverted_lists.num_sampled(num_classes, num_lists)
    begins = tf.constant(np.arange(count + 1) * num_classes // count, tf.int64)
    bits = philox.bits_of_draws(tf.stack([step, tf.zeros_like(step)]), count)[0]
    return begins[:-1] + philox.scale_bits(bits, begins[1:] - begins[:-1])


def _check_shapes(shapes: Sequence[tf.TensorShape]) -> None:
    """Raises an InvalidArgumentError unless the shapes are those of an inverted file."""
    means, ids = shapes[0], shapes[3]
    if means.rank != 2 or 0 in means or ids.rank != 1:
        errors.fail(
            "means must be [num_lists, dim], both at least 1, and ids [num_classes], got "
            f"{means} and {ids}"
        )
    num_lists, dim = means
    num_groups = -(-ids[0] // GROUP_ROWS)
    width = -(-dim // GROUP_ROWS) * GROUP_ROWS
    expected = [
        (num_lists, dim),
        (num_lists,),
        (num_lists + 1,),
        (ids[0],),
        (num_groups, width // CODES_TOGETHER, GROUP_ROWS, CODES_TOGETHER),
        (num_groups, 2, GROUP_ROWS),
        (2,),
    ]
    for name, shape, wanted in zip(_PARTS, shapes, expected, strict=False):
        if not shape.is_compatible_with(wanted):
            errors.fail(f"{name} must be of shape {list(wanted)}, got {shape}")


def _read(handle: tf.Tensor, dtype: tf.DType, shape: tf.TensorShape | None = None) -> tf.Tensor:
    value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
    return value if shape is None else tf.ensure_shape(value, shape)


def _write(handles: State, values: State) -> tf.Operation | None:
    writes = [
        tf.raw_ops.AssignVariableOp(resource=handle, value=value)
        for handle, value in zip(handles, values, strict=True)
    ]
    return tf.group(*writes)


def _done(written: tf.Operation | None) -> tf.Tensor:
    with tf.control_dependencies([] if written is None else [written]):
        return tf.constant(True)
