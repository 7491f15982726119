"""Class rows that are 8-bit integers times a scale per row."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.classes.row_sources import RowSource, RowTable
from tf_largeout.ops import class_scan_ops
from tf_largeout.ops.class_scan_ops import PackedClasses
from tf_largeout.variables.class_rows import row_blocks

# As in custom_ops/core/class_scan/packed_rows_simd.h.
GROUP_ROWS, CODES_TOGETHER, CODE_OF_ZERO = 16, 4, 128
_WIDTH_MULTIPLE = 16

# TensorFlow keeps the memory of freed tensors, so few numbers are float32 at a time.
_NUMBERS_AT_A_TIME = 2**21
_ALIGNMENT = 64  # bytes; TensorFlow reads arrays in place that start at a multiple of it

_LARGEST_FACTOR = 1e30  # rows of smaller numbers become 0

# Function of `first, end`; returns the rows of these classes, and their biases or None.
RowsAndBias = Callable[[int, int], tuple[tf.Tensor, tf.Tensor | None]]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PackedTable(RowTable):
    """Rows `s_c q_c`, where `q_c` are 8-bit integers, for the ops of this library.

    The scale `s_c` is the largest magnitude in a row over 127. `q_c` is the row over its scale,
    rounded to integers. A class takes a byte per number and 20 bytes more, and has no float32
    row: `top_k` computes bounds of all logits from the integers, and multiplies in float32 only
    the rows of classes that can be among the best. The rows have no gradients.

    Attributes:
        packed: The rows and biases, as tensors or variables, see `pack_rows`.
    """

    packed: PackedClasses

    @classmethod
    def of(
        cls, packed: PackedClasses, shape: tuple[int, int], has_bias: bool, owner: str
    ) -> "PackedTable":
        """Returns a table of all classes, of shape `(num_classes, dim)`."""
        return cls(
            first=0,
            num_rows=shape[0],
            dim=shape[1],
            has_bias=has_bias,
            owner=owner,
            packed=packed,
        )

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
        return self.rows(tf.range(self.num_rows))

    def reader(self) -> Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor | None]]:
        return lambda ids: (self.rows(ids), self.biases(ids))

    def dots_and_rows(
        self, queries: tf.Tensor, ids: tf.Tensor, shared_ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        own = tf.maximum(ids, 0)
        logits = tf.linalg.matvec(self.rows(own), tf.cast(queries, tf.float32))
        logits = tf.where(ids >= 0, logits + self.biases(own), logits.dtype.min)
        return logits, self.rows(shared_ids), self.biases(shared_ids)

    def top_k(self, queries: tf.Tensor, k: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return class_scan_ops.packed_top_k(queries, self.packed, self.num_rows, k)

    def biases(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the biases of classes: 0 without biases, -inf for removed classes."""
        return tf.gather(self.packed.scales, _place(ids) + GROUP_ROWS)

    def _scales(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(self.packed.scales, _place(ids))

    def largest_errors(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns bounds of the rounding error of each number of the rows, `[...]`."""
        return 0.501 * self._scales(ids)  # a half, and rounding errors of float32


def quantized_products(
    source: RowSource,
) -> tuple[tf.Variable, tf.Variable | None, tf.Variable]:
    """Quantizes rows, in blocks, for core TensorFlow ops, to variables.

    They are int8 from -127 to 127, the biases, and the largest magnitude of each row over 127.
    """
    shape, read = (source.num_classes, source.dim), source.read
    integers, (scales, bias) = np.empty(shape, np.int8), np.empty([2, shape[0]], np.float32)
    for first, end in _blocks_of(shape):
        rows, biases = read(first, end)
        integers[first:end], scales[first:end] = (one.numpy() for one in _quantized(rows))
        if biases is not None:
            bias[first:end] = biases
    return (
        tf.Variable(integers, trainable=False, name="embeddings"),
        tf.Variable(bias, trainable=False, name="bias") if source.has_bias else None,
        tf.Variable(scales, trainable=False, name="scales"),
    )


def packed_source(source: RowSource) -> RowSource:
    """Quantizes rows, in blocks, to a `PackedTable` in variables on the CPU."""
    shape = source.num_classes, source.dim
    with tf.device("CPU:0"):
        arrays = pack_rows(source.read, shape)
        packed = PackedClasses(*(tf.Variable(one, trainable=False) for one in arrays))
    return RowSource([PackedTable.of(packed, shape, source.has_bias, source.owner)])


def _quantized(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns int8 `[n, dim]` and scales `[n]` of rows, as the packed rows have them."""
    largest = tf.reduce_max(tf.abs(rows), axis=1)
    factors = 127.0 / largest
    factors = tf.where(factors < _LARGEST_FACTOR, factors, 0.0)
    scales = tf.where(factors > 0.0, largest / 127.0, 0.0)
    return tf.cast(tf.round(rows * factors[:, tf.newaxis]), tf.int8), scales


def _blocks_of(shape: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yields ranges of rows, which start at whole groups."""
    return row_blocks(shape, _NUMBERS_AT_A_TIME, GROUP_ROWS)


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
    """Quantizes rows to arrays of `PackedClasses`, in blocks, without a float32 copy of all."""
    num_classes, dim = shape
    padded = -(-num_classes // GROUP_ROWS) * GROUP_ROWS
    width = padded_width(dim)
    codes = empty_aligned((padded * width,), np.uint8)
    scales = empty_aligned((padded * 5,), np.float32)
    bounds = scales[padded * 2 :]
    for first, end in _blocks_of(shape):
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
