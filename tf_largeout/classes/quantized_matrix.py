"""`QuantizedMatrix`: classes whose rows are 8-bit integers times a scale per row."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.classes import blockwise
from tf_largeout.classes.blockwise import BlockFunction
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.ops import class_scan_ops
from tf_largeout.ops.class_scan_ops import PackedClasses

# As in custom_ops/core/class_scan/packed_rows_simd.h.
GROUP_ROWS, CODES_TOGETHER, CODE_OF_ZERO = 16, 4, 128
_WIDTH_MULTIPLE = 16

# TensorFlow keeps the memory of freed tensors, so few numbers are float32 at a time.
_NUMBERS_AT_A_TIME = 2**21
_ALIGNMENT = 64  # bytes; TensorFlow reads arrays in place that start at a multiple of it

RowsAndBias = Callable[[int, int], tuple[tf.Tensor, tf.Tensor | None]]


class QuantizedMatrix(ClassScorer):
    """Classes with the logits `o_c = s_c <q_c, h> + b_c`, where `q_c` are 8-bit integers.

    The scale `s_c` is the largest magnitude in a row over 127. `q_c` is the row over its scale,
    rounded to integers. A class takes a byte per number and 20 bytes more, and has no float32
    row: `top_k` computes bounds of all logits from the integers, and multiplies in float32 only
    the rows of classes that can be among the best.

    Args:
        packed: The rows and biases, as tensors or variables, see `pack_rows`.
        shape: `(num_classes, dim)`.
        has_bias: Whether the classes have biases.
        owner: Name of the layer, for messages.
    """

    def __init__(
        self, packed: PackedClasses, shape: tuple[int, int], has_bias: bool, owner: str
    ) -> None:
        super().__init__(*shape, has_bias, owner)
        self.packed = packed

    @classmethod
    def in_variables(
        cls, rows_and_bias: RowsAndBias, shape: tuple[int, int]
    ) -> "QuantizedMatrix":
        """Quantizes rows as `pack_rows` does, and stores them in variables on the CPU."""
        with tf.device("CPU:0"):
            arrays = pack_rows(rows_and_bias, shape)
            packed = PackedClasses(*(tf.Variable(one, trainable=False) for one in arrays))
        return cls(packed, shape, rows_and_bias(0, 1)[1] is not None, "export")

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        words_of_row = padded_width(self.dim) // CODES_TOGETHER
        codes = tf.reshape(self.packed.codes, [-1, CODES_TOGETHER])
        ids = tf.cast(ids, tf.int64)
        first = ids // GROUP_ROWS * (words_of_row * GROUP_ROWS) + ids % GROUP_ROWS
        places = first[..., tf.newaxis] + GROUP_ROWS * tf.range(words_of_row, dtype=tf.int64)
        found = tf.bitcast(tf.gather(tf.bitcast(codes, tf.int32), places), tf.uint8)
        flat = tf.concat([tf.shape(ids), [words_of_row * CODES_TOGETHER]], axis=0)
        integers = tf.cast(tf.reshape(found, flat)[..., : self.dim], tf.float32) - CODE_OF_ZERO
        return integers * self._scales(ids)[..., tf.newaxis]

    def values(self) -> tf.Tensor:
        return self.rows(tf.range(self.num_classes))

    def dots(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        own = tf.maximum(ids, 0)
        logits = tf.linalg.matvec(self.rows(own), tf.cast(features, tf.float32))
        return tf.where(ids >= 0, logits + self.biases(own), logits.dtype.min)

    def fold_logits(
        self,
        features: tf.Tensor,
        function: BlockFunction,
        state: Any,
        *,
        width: int | tf.Tensor = 1,
        classes: tf.Tensor | None = None,
    ) -> Any:
        features = tf.cast(features, tf.float32)
        block = blockwise.block_size(tf.shape(features)[0], self.dim, width)

        def logits_of(ids: tf.Tensor) -> tf.Tensor:
            return tf.matmul(features, self.rows(ids), transpose_b=True) + self.biases(ids)

        return blockwise.fold_blocks(
            logits_of, block, self.num_classes, classes, function, state
        )

    def top_k(self, features: tf.Tensor, k: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return class_scan_ops.packed_top_k(features, self.packed, self.num_classes, k)

    def biases(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the biases of classes: 0 without biases, -inf for removed classes."""
        return tf.gather(self.packed.scales, _place(ids) + GROUP_ROWS)

    def _scales(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(self.packed.scales, _place(ids))

    def largest_errors(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns bounds of the rounding error of each number of the rows, `[...]`."""
        return 0.501 * self._scales(ids)  # a half, and rounding errors of float32


def blocks_of(shape: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yields the first row and the end of blocks of rows, which start at whole groups."""
    num_classes, dim = shape
    size = max(_NUMBERS_AT_A_TIME // dim // GROUP_ROWS, 1) * GROUP_ROWS
    for first in range(0, num_classes, size):
        yield first, min(first + size, num_classes)


def padded_width(dim: int) -> int:
    """Returns the number of bytes of a packed row."""
    return -(-dim // _WIDTH_MULTIPLE) * _WIDTH_MULTIPLE


def empty_aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Returns a new array that TensorFlow can read in place."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % _ALIGNMENT
    return memory[first : first + size].view(dtype).reshape(shape)


def pack_rows(
    rows_and_bias: RowsAndBias, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Quantizes rows in blocks, so that there is no float32 copy of all of them.

    Args:
        rows_and_bias: Function of `first, end`; returns the rows of these classes, float32 `[n,
            dim]`, and their biases, float32 `[n]`, or None.
        shape: `(num_classes, dim)`.

    Returns:
        The arrays of `PackedClasses`.
    """
    num_classes, dim = shape
    padded = -(-num_classes // GROUP_ROWS) * GROUP_ROWS
    width = padded_width(dim)
    codes = empty_aligned((padded * width,), np.uint8)
    scales = empty_aligned((padded * 5,), np.float32)
    bounds = scales[padded * 2 :]
    for first, end in blocks_of(shape):
        rows, bias = rows_and_bias(first, end)
        with tf.device("CPU:0"):
            packed = class_scan_ops.pack_classes(
                _variable(rows), None if bias is None else _variable(bias)
            )
        count = packed.scales.shape[0] // 5  # with the padding of the last group
        codes[first * width : (first + count) * width] = packed.codes
        scales[first * 2 : (first + count) * 2] = packed.scales[: count * 2]
        bounds[first * 3 : (first + count) * 3] = packed.scales[count * 2 :]
    return codes, scales


def _place(ids: tf.Tensor) -> tf.Tensor:
    """Returns the places of the scales of classes."""
    return ids // GROUP_ROWS * (2 * GROUP_ROWS) + ids % GROUP_ROWS


def _variable(value: tf.Tensor) -> tf.Variable:
    # TensorFlow keeps 34 KB per variable name.
    return keras.Variable(value, name="rows", trainable=False, dtype="float32").value
