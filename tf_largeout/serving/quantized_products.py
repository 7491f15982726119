"""Class rows in 8 bits per number, for exports."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.classes.quantized_matrix import QuantizedMatrix, RowsAndBias, blocks_of

_LARGEST_FACTOR = 1e30  # rows of smaller numbers become 0


class QuantizedProducts(NamedTuple):
    """Class rows as 8-bit integers times a scale per row, for core TensorFlow ops.

    Attributes:
        integers: int8 variable `[num_classes, dim]`, from -127 to 127.
        scales: float32 variable `[num_classes]`, the largest magnitude of a row over 127.
        bias: float32 variable `[num_classes]`, or None.
    """

    integers: tf.Variable
    scales: tf.Variable
    bias: tf.Variable | None


def quantized_products(scorer: ClassScorer) -> QuantizedProducts | None:
    """Quantizes the rows of a scorer; None if inner products do not score its classes."""
    blocks = _blocks(scorer)
    if blocks is None:
        return None
    integers = np.empty([scorer.num_classes, scorer.dim], np.int8)
    scales, bias = np.empty([2, scorer.num_classes], np.float32)
    for first, end in blocks_of((scorer.num_classes, scorer.dim)):
        rows, biases = blocks(first, end)
        integers[first:end], scales[first:end] = (one.numpy() for one in _quantized(rows))
        if biases is not None:
            bias[first:end] = biases
    return QuantizedProducts(
        tf.Variable(integers, trainable=False, name="embeddings"),
        tf.Variable(scales, trainable=False, name="scales"),
        tf.Variable(bias, trainable=False, name="bias") if scorer.has_bias else None,
    )


def quantized_matrix(scorer: ClassScorer) -> QuantizedMatrix | None:
    """Packs the rows of a scorer for the ops of this library; None as above."""
    blocks = _blocks(scorer)
    if blocks is None:
        return None
    return QuantizedMatrix.in_variables(blocks, (scorer.num_classes, scorer.dim))


def _blocks(scorer: ClassScorer) -> RowsAndBias | None:
    """Returns a function that reads some rows and biases of a scorer."""
    if scorer.is_rounded:  # products would be a float32 copy of all rows
        zeros = tf.zeros([1, scorer.dim])  # as features: the logits are the biases

        def widened(first: int, end: int) -> tuple[tf.Tensor, tf.Tensor | None]:
            ids = tf.range(first, end, dtype=tf.int64)
            bias = scorer.dots(zeros, ids[tf.newaxis])[0] if scorer.has_bias else None
            return scorer.rows(ids), bias

        return widened
    products = scorer.as_products()
    if products is None:
        return None
    embeddings = products[0].read_value()
    bias = None if products[1] is None else products[1].read_value()

    def of_products(first: int, end: int) -> tuple[tf.Tensor, tf.Tensor | None]:
        return embeddings[first:end], None if bias is None else bias[first:end]

    return of_products


def _quantized(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns int8 `[n, dim]` and scales `[n]` of rows, as the packed rows have them."""
    largest = tf.reduce_max(tf.abs(rows), axis=1)
    factors = 127.0 / largest
    factors = tf.where(factors < _LARGEST_FACTOR, factors, 0.0)
    scales = tf.where(factors > 0.0, largest / 127.0, 0.0)
    return tf.cast(tf.round(rows * factors[:, tf.newaxis]), tf.int8), scales
