"""Classes of 8 bits per number; see `ops/class_scan_ops.py`.

Codes and scales are those of the op library. Bounds of rounding errors are marked as unknown:
only the passes of the op library use them.
"""

from collections.abc import Sequence

import tensorflow as tf

from tf_largeout.ops.stock import errors, inverted_file, tables
from tf_largeout.ops.stock.inverted_lists import (
    CODE_OF_ZERO,
    CODES_TOGETHER,
    GROUP_ROWS,
    MOST_OF_ROW,
)

_INFINITY = float("inf")
_LOWEST, _NOTHING = tf.float32.min, tf.int64.min
_NUMBERS_AT_ONCE = 2**22
_LARGE = 2.0**64


def largeout_pack_classes(
    embeddings: tf.Tensor, bias: Sequence[tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns codes and scales, in blocks of rows."""
    tables.check(embeddings, "the embeddings")
    num_classes, dim = tables.static_shape(embeddings)
    for one in bias:
        tables.check(one, "the bias", shape=tf.TensorShape([num_classes]))
    width, num_groups = -(-dim // GROUP_ROWS) * GROUP_ROWS, -(-num_classes // GROUP_ROWS)
    step = _groups_at_once(width, num_groups)
    last = num_classes - 1

    def pack(first: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Packs `step` groups. Rows after the last one are padding."""
        places = first * GROUP_ROWS + tf.range(step * GROUP_ROWS, dtype=tf.int64)
        ids = tf.minimum(places, last)
        rows = tables.gather(embeddings, ids)
        biases = tables.gather(bias[0], ids) if bias else tf.zeros([step * GROUP_ROWS])
        numbers, scales = inverted_file.quantized(rows, MOST_OF_ROW, width)
        exists = places <= last
        has_logit = exists & (biases > -_INFINITY) & tf.math.is_finite(scales)
        is_finite = has_logit & (biases < _INFINITY)
        numbers = tf.where(exists[:, tf.newaxis], numbers, 0.0)
        words = tf.reshape(
            tf.cast(numbers + CODE_OF_ZERO, tf.uint8),
            [step, GROUP_ROWS, width // CODES_TOGETHER, CODES_TOGETHER],
        )
        parts = [tf.where(is_finite, scales, 0.0), tf.where(is_finite, biases, -_INFINITY)]
        zeros = tf.zeros_like(scales)
        bounds = [zeros, zeros, tf.where(has_logit, _INFINITY, -_INFINITY)]
        scales, bounds = (
            tf.transpose(tf.reshape(tf.stack(one), [-1, step, GROUP_ROWS]), [1, 0, 2])
            for one in (parts, bounds)
        )
        return tf.transpose(words, [0, 2, 1, 3]), scales, bounds

    firsts = tf.range(0, num_groups, step, dtype=tf.int64)
    specs = [
        tf.TensorSpec([step, width // CODES_TOGETHER, GROUP_ROWS, CODES_TOGETHER], tf.uint8),
        tf.TensorSpec([step, 2, GROUP_ROWS], tf.float32),
        tf.TensorSpec([step, 3, GROUP_ROWS], tf.float32),
    ]
    blocks = tf.map_fn(pack, firsts, fn_output_signature=tuple(specs), parallel_iterations=1)
    codes, scales, bounds = (
        tf.reshape(
            tf.reshape(one, [-1, *spec.shape[1:]])[:num_groups],
            [num_groups * spec.shape[1:].num_elements()],
        )
        for one, spec in zip(blocks, specs, strict=True)
    )
    return codes, tf.concat([scales, bounds], axis=0)


def largeout_packed_top_k(
    features: tf.Tensor,
    packed_codes: tf.Tensor,
    packed_scales: tf.Tensor,
    k: tf.Tensor,
    num_classes: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the scores and ids of the best classes, `[batch, k]`, block by block."""
    features = tf.convert_to_tensor(features, tf.float32)
    codes, scales = tf.convert_to_tensor(packed_codes), tf.convert_to_tensor(packed_scales)
    width, num_groups = -(-features.shape[1] // GROUP_ROWS) * GROUP_ROWS, scales.shape[0] // 80
    groups = -(-num_classes // GROUP_ROWS)
    if codes.shape != (groups * GROUP_ROWS * width,) or num_groups != groups:
        errors.fail(
            f"packed_codes must be [{groups * GROUP_ROWS * width}] and packed_scales "
            f"[{groups * 80}] for {num_classes} classes and features {features.shape}, got "
            f"{codes.shape} and {scales.shape}"
        )
    k = tf.convert_to_tensor(k, tf.int64)
    message = f"k must be in [1, {num_classes}], got {{number}}"
    k = tf.cast(errors.all_true((k >= 1) & (k <= num_classes), k, message, k), tf.int32)
    message = "features must be finite, but those of {place} are not: one is {number}"
    features = errors.all_true(tf.math.is_finite(features), features, message, features)
    words = tf.reshape(
        tf.bitcast(tf.reshape(codes, [-1, CODES_TOGETHER]), tf.int32), [groups, -1]
    )
    values = tf.reshape(scales[: groups * 2 * GROUP_ROWS], [groups, 2, GROUP_ROWS])
    step = _groups_at_once(width, groups)
    queries = tf.pad(features, [[0, 0], [0, width - features.shape[1]]])

    def add(first: tf.Tensor, best: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        places = first + tf.range(step)
        some = tf.minimum(places, groups - 1)
        block = tf.reshape(tf.gather(words, some), [step, width // CODES_TOGETHER, GROUP_ROWS])
        rows = tf.bitcast(tf.transpose(block, [0, 2, 1]), tf.uint8)
        rows = tf.cast(tf.reshape(rows, [step * GROUP_ROWS, width]), tf.float32) - CODE_OF_ZERO
        of_rows, biases = (
            tf.reshape(one, [-1]) for one in tf.unstack(tf.gather(values, some), axis=1)
        )
        scores = tf.matmul(queries, rows * of_rows[:, tf.newaxis], transpose_b=True) + biases
        # NaN and -inf rank last, but above classes that do not exist.
        scores = tf.where(scores > _LOWEST, scores, _LOWEST)
        ids = tf.reshape(places[:, tf.newaxis] * GROUP_ROWS + tf.range(GROUP_ROWS), [-1])
        keys = tf.where(ids < num_classes, inverted_file.packed(scores, ids), _NOTHING)
        best = tf.math.top_k(tf.concat([best, keys], axis=1), k).values
        return first + step, tf.ensure_shape(best, nothing.shape)

    nothing = tf.fill([tf.shape(features)[0], k], tf.constant(_NOTHING, tf.int64))
    going = lambda first, _: first < groups  # noqa: E731
    found = tf.while_loop(going, add, (0, nothing), parallel_iterations=1)[1]
    scores, ids = inverted_file.unpacked(found)
    scores = tf.where(scores > _LOWEST, scores, -_INFINITY)
    size = tf.reduce_sum(tf.abs(features), axis=1, keepdims=True)
    has_row = tf.gather(tf.reshape(values[:, 1], [-1]), tf.maximum(ids, 0)) > -_INFINITY
    lost = (scores == _INFINITY) | ((size > _LARGE) & (scores == -_INFINITY) & has_row)
    message = (
        "logits must not overflow, but for {place} one is {number}: scale the features down"
    )
    return errors.all_true(~lost, scores, message, scores), ids


def _groups_at_once(width: int, num_groups: int) -> int:
    return max(1, min(_NUMBERS_AT_ONCE // max(width * GROUP_ROWS, 1), num_groups))
