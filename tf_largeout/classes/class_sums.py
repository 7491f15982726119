"""Sums over all classes, with gradients, computed in blocks of classes."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_largeout.classes.best_scores import NOTHING
from tf_largeout.classes.blockwise import block_size

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
    term: Callable[[tf.Tensor], tf.Tensor] | None = None,
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

    Returns:
        Two float32 tensors `[B]`; the second is 0 without a `term`.
    """
    biases = [] if bias is None else [bias]

    @tf.custom_gradient
    def compute(features: tf.Tensor, embeddings: tf.Tensor, *biases: tf.Tensor) -> Any:
        batch, count = tf.shape(features)[0], tf.shape(embeddings)[0]
        block = tf.cast(block_size(batch, embeddings.shape[1], 1), tf.int32)

        def of_block(first: tf.Tensor) -> list[tf.Tensor]:
            end = tf.minimum(first + block, count)
            return [values[first:end] for values in (embeddings, *biases)]

        def add(first: tf.Tensor, log_partition: tf.Tensor, total: tf.Tensor) -> Any:
            rows, *own = of_block(first)
            scores = score(features, rows, own[0] if own else None)
            both = tf.stack([log_partition, tf.reduce_logsumexp(scores, axis=1)])
            if term is not None:
                total += tf.reduce_sum(term(scores), axis=1)
            return first + block, tf.reduce_logsumexp(both, axis=0), total

        start = (tf.constant(0), tf.fill([batch], NOTHING), tf.zeros([batch]))
        _, log_partition, total = tf.while_loop(
            lambda first, *_: first < count, add, start, parallel_iterations=1
        )

        def gradient(d_log_partition: tf.Tensor, d_total: tf.Tensor) -> list[tf.Tensor]:
            num_blocks = (count + block - 1) // block
            arrays = [
                tf.TensorArray(tf.float32, num_blocks, infer_shape=False)
                for _ in (embeddings, *biases)
            ]

            def add_block(
                index: tf.Tensor, d_features: tf.Tensor, arrays: list[tf.TensorArray]
            ) -> Any:
                parts = of_block(index * block)
                with tf.GradientTape(persistent=term is not None) as tape:
                    tape.watch([features, *parts])
                    scores = score(features, parts[0], parts[1] if biases else None)
                    summed = None if term is None else term(scores)
                probabilities = tf.exp(scores - log_partition[:, tf.newaxis])
                d_scores = probabilities * d_log_partition[:, tf.newaxis]
                if summed is not None:
                    d_summed = tf.broadcast_to(d_total[:, tf.newaxis], tf.shape(scores))
                    d_scores += tape.gradient(summed, scores, d_summed)
                d_own, *d_parts = tape.gradient(scores, [features, *parts], d_scores)
                arrays = [
                    array.write(index, one) for array, one in zip(arrays, d_parts, strict=True)
                ]
                return index + 1, d_features + d_own, arrays

            _, d_features, arrays = tf.while_loop(
                lambda index, *_: index < num_blocks,
                add_block,
                (tf.constant(0), tf.zeros_like(features), arrays),
                parallel_iterations=1,
            )
            return [d_features, *(array.concat() for array in arrays)]

        return (log_partition, total), gradient

    return compute(features, embeddings, *biases)
