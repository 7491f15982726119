"""Sums over all classes, with gradients, computed in blocks of classes."""

import dataclasses
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from tf_largeout.classes.best_scores import NOTHING
from tf_largeout.classes.blockwise import block_size, fold_blocks, with_block
from tf_largeout.keras_internals import running_step
from tf_largeout.types import Elementwise
from tf_largeout.variables.class_rows import RowShard

_LOWEST = tf.float32.min  # finite, so that gradients of a logsumexp of several such are 0


@dataclasses.dataclass(frozen=True, eq=False)
class DenseRows:
    """All rows of a table as one tensor, for sums over all classes with gradients.

    The logits are `<w_c, h_b> + b_c`. Sums have first-order gradients with respect to the
    features, the rows and the biases. Those of the rows and biases are dense. The backward pass
    computes the logits again, so `[B, n]` is never in memory. `as_read` returns rows `[...,
    dim]` in the form in which they are scored.
    """

    shard: RowShard
    rows: tf.Tensor
    bias: tf.Tensor | None
    as_read: Elementwise = tf.identity

    def place(self) -> AbstractContextManager[None]:
        """Returns the scope of the device that holds the rows."""
        return self.shard.place()

    def sums(
        self,
        features: tf.Tensor,
        function: Elementwise = tf.identity,
        term: Elementwise | None = None,
        left_out: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns `log sum_c exp(s_c)` and `sum_c term(s_c)`, where `function` gives the s_c.

        The first sum leaves out the rows `left_out`, int64 `[B, L]`, padded with -1, which
        cannot be combined with `term`. It is the lowest float if no class is left.
        """
        sums = _BlockSums(self.as_read, function, term, left_out)

        @tf.custom_gradient
        def compute(features: tf.Tensor, *weights: tf.Tensor) -> Any:
            log_partition, total = sums.forward(features, weights)

            def gradient(d_log_partition: tf.Tensor, d_total: tf.Tensor) -> list[tf.Tensor]:
                return sums.backward(features, weights, log_partition, d_log_partition, d_total)

            return (log_partition, total), gradient

        return compute(features, self.rows, *([] if self.bias is None else [self.bias]))

    def exact_scores(
        self, features: tf.Tensor, labels: tf.Tensor, function: Elementwise, others_only: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """See `ClassScorer.exact_scores`; the labels are classes of all tables."""
        labels = self.shard.to_local(labels)
        left_out = labels if others_only else None
        log_partition, _ = self.sums(features, function, left_out=left_out)
        ids = tf.maximum(labels, 0)
        logits = tf.linalg.matvec(self.as_read(_gathered(self.rows, ids)), features)
        if self.bias is not None:
            logits += _gathered(self.bias, ids)
        return log_partition, tf.where(labels >= 0, function(logits), 0)

    def mean_logits(self, features: tf.Tensor) -> tf.Tensor:
        """Returns the mean of the logits, float32 `[B]`, from the means of rows and biases."""
        means = tf.linalg.matvec(features, tf.reduce_mean(self.as_read(self.rows), axis=0))
        return means if self.bias is None else means + tf.reduce_mean(self.bias)


@dataclasses.dataclass(frozen=True, eq=False)
class _BlockSums:
    """The two passes of `DenseRows.sums`. `weights` are the rows, and biases if any."""

    as_read: Elementwise
    function: Elementwise
    term: Elementwise | None
    left_out: tf.Tensor | None

    def forward(
        self, features: tf.Tensor, weights: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        batch, count = tf.shape(features)[0], tf.shape(weights[0])[0]
        block = _block_size(features)

        def add(state: tuple[tf.Tensor, tf.Tensor], parts: list[tf.Tensor], first: Any) -> Any:
            log_partition, total = state
            scores = self._without(self._scores(features, parts), first)
            if self.term is not None:
                total += tf.reduce_sum(self.term(scores), axis=1)
            return with_block(log_partition, scores), total

        def next_block(first: tf.Tensor, *state: tf.Tensor) -> Any:
            end = tf.minimum(first + block, count)
            return end, *add(state, [values[first:end] for values in weights], first)

        state = tf.fill([batch], NOTHING), tf.zeros([batch])
        if running_step().is_compiled:
            return fold_blocks(
                weights[0].shape[0],
                tf.cast(block, tf.int64),
                lambda state, first, size: add(state, _slices(weights, first, size), first),
                state,
            )
        _, log_partition, total = tf.while_loop(
            lambda first, *_: first < count,
            next_block,
            (tf.constant(0), *state),
            parallel_iterations=1,
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
        upstream = log_partition, d_log_partition, d_total
        if running_step().is_compiled:
            return self._backward_compiled(features, weights, *upstream)
        count, block = tf.shape(weights[0])[0], _block_size(features)
        num_blocks = (count + block - 1) // block
        arrays = [tf.TensorArray(tf.float32, num_blocks, infer_shape=False) for _ in weights]

        def add(index: tf.Tensor, d_features: tf.Tensor, arrays: list[tf.TensorArray]) -> Any:
            first = index * block
            parts = [values[first : tf.minimum(first + block, count)] for values in weights]
            d_own, *d_parts = self._gradients_of_block(features, parts, first, *upstream)
            pairs = zip(arrays, d_parts, strict=True)
            arrays = [array.write(index, one) for array, one in pairs]
            return index + 1, d_features + d_own, arrays

        _, d_features, arrays = tf.while_loop(
            lambda index, *_: index < num_blocks,
            add,
            (tf.constant(0), tf.zeros_like(features), arrays),
            parallel_iterations=1,
        )
        return [d_features, *(array.concat() for array in arrays)]

    def _backward_compiled(
        self, features: tf.Tensor, weights: Sequence[tf.Tensor], *upstream: tf.Tensor
    ) -> list[tf.Tensor]:
        """Implements `backward` for steps that XLA compiles."""
        count, block = weights[0].shape[0], tf.cast(_block_size(features), tf.int64)
        num_blocks = tf.cast((count - 1) // block + 1, tf.int32)
        arrays = [tf.TensorArray(tf.float32, num_blocks) for _ in weights]

        def add(state: Any, first: tf.Tensor, size: tf.Tensor) -> Any:
            parts, arrays = _slices(weights, first, size), []
            d_own, *d_parts = self._gradients_of_block(features, parts, first, *upstream)
            for array, part in zip(state[1], d_parts, strict=True):
                padding = [[0, block - size], *[[0, 0]] * (part.shape.rank - 1)]
                part = tf.pad(part, padding)
                arrays.append(array.write(tf.cast(first // block, tf.int32), part))
            return state[0] + d_own, arrays

        d_features, arrays = fold_blocks(count, block, add, (tf.zeros_like(features), arrays))
        found = [d_features]
        for array, values in zip(arrays, weights, strict=True):
            found.append(tf.reshape(array.stack(), [-1, *values.shape[1:]])[:count])
        return found

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
        with tf.GradientTape(persistent=self.term is not None) as tape:
            tape.watch([features, *parts])
            scores = self._scores(features, parts)
            summed = None if self.term is None else self.term(scores)
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
        if self.left_out is None:
            return scores
        columns = self.left_out - tf.cast(first, tf.int64)
        if running_step().is_compiled:
            places = tf.range(tf.shape(scores, tf.int64)[1])
            is_left_out = tf.reduce_any(columns[:, :, tf.newaxis] == places, axis=1)
            return tf.where(is_left_out, _LOWEST, scores)
        places = tf.where((columns >= 0) & (columns < tf.shape(scores, tf.int64)[1]))
        at = tf.stack([places[:, 0], tf.gather_nd(columns, places)], axis=1)
        return tf.tensor_scatter_nd_update(scores, at, tf.fill(tf.shape(at)[:1], _LOWEST))

    def _scores(self, features: tf.Tensor, parts: list[tf.Tensor]) -> tf.Tensor:
        logits = tf.matmul(features, self.as_read(parts[0]), transpose_b=True)
        return self.function(logits + parts[1] if len(parts) > 1 else logits)


def _block_size(features: tf.Tensor) -> tf.Tensor:
    return tf.cast(block_size(tf.shape(features)[0], features.shape[1], 1), tf.int32)


def _slices(weights: Sequence[tf.Tensor], first: tf.Tensor, size: tf.Tensor) -> list[tf.Tensor]:
    """Returns `size` rows of each tensor; XLA does not know the size of `values[first:end]`."""
    parts = []
    for values in weights:
        rest = values.shape[1:].as_list()
        parts.append(tf.slice(values, [first, *[0] * len(rest)], [size, *rest]))
    return parts


def _gathered(values: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Returns `tf.gather(values, ids)`, with a gradient that is a dense tensor."""

    @tf.custom_gradient
    def compute(values: tf.Tensor) -> Any:
        def gradient(d_found: tf.Tensor) -> tf.Tensor:
            return tf.math.unsorted_segment_sum(d_found, ids, tf.shape(values)[0])

        return tf.gather(values, ids), gradient

    return compute(values)
