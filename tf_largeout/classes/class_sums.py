"""Sums over all classes, with gradients, computed in blocks of classes."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_largeout.classes.best_scores import NOTHING
from tf_largeout.classes.blockwise import block_size, with_block
from tf_largeout.types import Elementwise

_LOWEST = tf.float32.min  # finite, so that gradients of a logsumexp of several such are 0

# `(features [B, dim], rows [n, dim], biases [n] or None) -> scores [B, n]`
Score = Callable[[tf.Tensor, tf.Tensor, tf.Tensor | None], tf.Tensor]


def dot_products(features: tf.Tensor, rows: tf.Tensor, biases: tf.Tensor | None) -> tf.Tensor:
    """Returns the logits `<w_c, h_b> + b_c`, float32 `[B, n]`."""
    logits = tf.matmul(features, rows, transpose_b=True)
    return logits if biases is None else logits + biases


def sums_of_classes(
    features: tf.Tensor,
    embeddings: tf.Tensor,
    bias: tf.Tensor | None,
    score: Score = dot_products,
    term: Elementwise | None = None,
    left_out: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns `log sum_c exp(s_c)` and `sum_c term(s_c)` over the scores s_c of all classes.

    Both have first-order gradients with respect to the features, the embeddings and the bias.
    Those of the embeddings and the bias are dense. The backward pass computes the scores again,
    so `[B, num_classes]` is never in memory.

    Args:
        features: float32 `[B, dim]`.
        embeddings: float32 `[num_classes, dim]`.
        bias: float32 `[num_classes]`, or None.
        score: Differentiable function that computes the scores of a block of classes.
        term: Differentiable elementwise function; None sums nothing.
        left_out: int64 `[B, L]`, classes that the first sum of each example leaves out, padded
            with -1; or None. It cannot be combined with `term`.

    Returns:
        Two float32 tensors `[B]`. The first is the lowest float if no class is left. The
        second is 0 without a `term`.
    """
    sums, biases = _BlockSums(score, term, left_out), [] if bias is None else [bias]

    @tf.custom_gradient
    def compute(features: tf.Tensor, *weights: tf.Tensor) -> Any:
        log_partition, total = sums.forward(features, weights)

        def gradient(d_log_partition: tf.Tensor, d_total: tf.Tensor) -> list[tf.Tensor]:
            return sums.backward(features, weights, log_partition, d_log_partition, d_total)

        return (log_partition, total), gradient

    return compute(features, embeddings, *biases)


def exact_scores(
    features: tf.Tensor,
    labels: tf.Tensor,
    embeddings: tf.Tensor,
    bias: tf.Tensor | None,
    function: Elementwise,
    as_read: Elementwise = tf.identity,
    others_only: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the result of `ClassScorer.exact_scores`.

    Args:
        features: float32 `[B, dim]`.
        labels: int64 `[B, L]`, padded with -1.
        embeddings: float32 `[num_classes, dim]`.
        bias: float32 `[num_classes]`, or None.
        function: Differentiable elementwise function of the logits.
        as_read: Returns rows `[..., dim]` in the form in which the classes are scored.
        others_only: Whether the sum leaves out the labels of the example.
    """

    def score(features: tf.Tensor, rows: tf.Tensor, biases: tf.Tensor | None) -> tf.Tensor:
        return function(dot_products(features, as_read(rows), biases))

    left_out = labels if others_only else None
    log_partition, _ = sums_of_classes(features, embeddings, bias, score, left_out=left_out)
    ids = tf.maximum(labels, 0)
    logits = tf.linalg.matvec(as_read(gathered(embeddings, ids)), features)
    if bias is not None:
        logits += gathered(bias, ids)
    return log_partition, tf.where(labels >= 0, function(logits), 0)


class _BlockSums:
    """The two passes of `sums_of_classes`. `weights` are the embeddings, and biases if any."""

    def __init__(
        self,
        score: Score,
        term: Elementwise | None,
        left_out: tf.Tensor | None = None,
    ) -> None:
        self._score, self._term, self._left_out = score, term, left_out

    def forward(
        self, features: tf.Tensor, weights: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        batch, count = tf.shape(features)[0], tf.shape(weights[0])[0]
        block = _block_size(features)

        def add(first: tf.Tensor, log_partition: tf.Tensor, total: tf.Tensor) -> Any:
            end = tf.minimum(first + block, count)
            scores = self._scores(features, [values[first:end] for values in weights])
            scores = self._without(scores, first)
            if self._term is not None:
                total += tf.reduce_sum(self._term(scores), axis=1)
            return end, with_block(log_partition, scores), total

        start = (tf.constant(0), tf.fill([batch], NOTHING), tf.zeros([batch]))
        _, log_partition, total = tf.while_loop(
            lambda first, *_: first < count, add, start, parallel_iterations=1
        )
        return log_partition, total

    def backward(
        self,
        features: tf.Tensor,
        weights: Sequence[tf.Tensor],
        log_partition: tf.Tensor,
        d_log_partition: tf.Tensor,
        d_total: tf.Tensor,
    ) -> list[tf.Tensor]:
        count, block = tf.shape(weights[0])[0], _block_size(features)
        num_blocks = (count + block - 1) // block
        arrays = [tf.TensorArray(tf.float32, num_blocks, infer_shape=False) for _ in weights]

        def add(index: tf.Tensor, d_features: tf.Tensor, arrays: list[tf.TensorArray]) -> Any:
            first = index * block
            parts = [values[first : tf.minimum(first + block, count)] for values in weights]
            d_own, *d_parts = self._gradients_of_block(
                features, parts, first, log_partition, d_log_partition, d_total
            )
            arrays = [
                array.write(index, one) for array, one in zip(arrays, d_parts, strict=True)
            ]
            return index + 1, d_features + d_own, arrays

        _, d_features, arrays = tf.while_loop(
            lambda index, *_: index < num_blocks,
            add,
            (tf.constant(0), tf.zeros_like(features), arrays),
            parallel_iterations=1,
        )
        return [d_features, *(array.concat() for array in arrays)]

    def _gradients_of_block(
        self,
        features: tf.Tensor,
        parts: list[tf.Tensor],
        first: tf.Tensor,
        log_partition: tf.Tensor,
        d_log_partition: tf.Tensor,
        d_total: tf.Tensor,
    ) -> list[tf.Tensor]:
        """Returns the gradients of the features and of the block's weights."""
        with tf.GradientTape(persistent=self._term is not None) as tape:
            tape.watch([features, *parts])
            scores = self._scores(features, parts)
            summed = None if self._term is None else self._term(scores)
        others = self._without(scores, first)
        probabilities = tf.exp(others - log_partition[:, tf.newaxis])
        probabilities = tf.where(others > _LOWEST, probabilities, 0)  # also if none is left
        d_scores = probabilities * d_log_partition[:, tf.newaxis]
        if summed is not None:
            d_summed = tf.broadcast_to(d_total[:, tf.newaxis], tf.shape(scores))
            d_scores += tape.gradient(summed, scores, d_summed)
        return tape.gradient(scores, [features, *parts], d_scores)

    def _without(self, scores: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
        """Returns the scores `[B, n]` of a block, the lowest float where they are left out."""
        if self._left_out is None:
            return scores
        columns = self._left_out - tf.cast(first, tf.int64)
        places = tf.where((columns >= 0) & (columns < tf.shape(scores, tf.int64)[1]))
        at = tf.stack([places[:, 0], tf.gather_nd(columns, places)], axis=1)
        return tf.tensor_scatter_nd_update(scores, at, tf.fill(tf.shape(at)[:1], _LOWEST))

    def _scores(self, features: tf.Tensor, parts: list[tf.Tensor]) -> tf.Tensor:
        return self._score(features, parts[0], parts[1] if len(parts) > 1 else None)


def _block_size(features: tf.Tensor) -> tf.Tensor:
    return tf.cast(block_size(tf.shape(features)[0], features.shape[1], 1), tf.int32)


def gathered(values: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Returns `tf.gather(values, ids)`, with a gradient that is a dense tensor.

    Args:
        values: float32 `[n, ...]`.
        ids: int64, of any shape.
    """

    @tf.custom_gradient
    def compute(values: tf.Tensor) -> Any:
        def gradient(d_found: tf.Tensor) -> tf.Tensor:
            return tf.math.unsorted_segment_sum(d_found, ids, tf.shape(values)[0])

        return tf.gather(values, ids), gradient

    return compute(values)
