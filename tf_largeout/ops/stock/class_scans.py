"""Exact passes over all classes in blocks of a fixed size; see `ops/class_scan_ops.py`.

A pass holds the logits of one block, about 16 MiB. The number of classes in a block depends
only on shapes, so XLA can compile a pass.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_largeout.ops import places
from tf_largeout.ops.stock import errors, products, tables

_NUMBERS_OF_A_BLOCK, _LEAST_IN_BLOCK = 2**22, 64
_LOWEST = tf.float32.min
# Logits of equal rows may differ by this part of the sum of the magnitudes of their products,
# because matrix products of different shapes add in different orders.
_ROUNDING = 2.0**-22
# Logits that overflow and logits of NaN are marked by their ids: plus the number of classes, or
# twice that number.
_LOST, _NAN = np.int64(1), np.int64(2)


class _Block(NamedTuple):
    """A block of classes. Classes that do not exist are at the end of the last block.

    Attributes:
        ids: int64 `[n]`, all in range. The last class takes the place of classes that do not
            exist.
        exists: bool `[n]`.
        rows: float32 `[n, dim]`.
        logits: float32 `[batch, n]`, -inf if the class does not exist.
    """

    ids: tf.Tensor
    exists: tf.Tensor
    rows: tf.Tensor
    logits: tf.Tensor


class _Classes:
    """The classes of a pass: their rows, their biases, and their logits for given features."""

    def __init__(
        self,
        features: tf.Tensor,
        embeddings: tf.Tensor,
        bias: Sequence[tf.Tensor],
        compute_type: str | tf.DType = "float32",
        unit_length: bool = False,
    ):
        tables.check(embeddings, "the embeddings", [tf.float32, tf.bfloat16])
        shape = tables.static_shape(embeddings)
        features = _features(features)
        errors.check_shape(features, "features", None, shape[1])
        for one in bias:
            tables.check(one, "the bias", shape=shape[:1])
        self._rounds = tf.as_dtype(compute_type) == tf.bfloat16
        self._embeddings, self._bias, self._unit_length = embeddings, bias, unit_length
        self.features = self.rounded(features)
        self.count = tables.num_rows(embeddings)

    def rounded(self, matrix: tf.Tensor) -> tf.Tensor:
        """Returns an operand of a product in the precision of the pass."""
        return products.rounded(matrix) if self._rounds else matrix

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns float32 rows as operands of products."""
        rows = tf.cast(tables.gather(self._embeddings, ids), tf.float32)
        if self._unit_length:
            squares = tf.reduce_sum(
                tf.square(tf.cast(rows, tf.float64)), axis=-1, keepdims=True
            )
            rows *= tf.cast(1 / tf.sqrt(tf.maximum(squares, 1e-12)), tf.float32)
        return self.rounded(rows)

    def biases(self, ids: tf.Tensor) -> tf.Tensor | float:
        return tables.gather(self._bias[0], ids) if self._bias else 0.0

    def blocks(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the number of classes of a block, and the number of blocks, int32 scalars.

        A GPU has int32 scalars in host memory, so that a loop does not wait for it.
        """
        batch, dim = tf.unstack(tf.shape(self.features))
        size = _NUMBERS_OF_A_BLOCK // tf.maximum(tf.maximum(batch, dim), 1)
        last = tf.cast(self.count - 1, tf.int32)  # there are at most 2^31 classes
        size = tf.minimum(tf.maximum(size, _LEAST_IN_BLOCK) - 1, last) + 1
        return size, last // size + 1

    def fold(self, function: Callable[[Any, _Block], Any], state: Any) -> Any:
        """Calls `function(state, block)` for all blocks in turn; returns the last state."""
        size, num_blocks = self.blocks()
        offsets = tf.cast(tf.range(size), tf.int64)

        def next_block(number: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
            first = tf.cast(number * size, tf.int64)
            exists = offsets < self.count - first
            ids = tf.minimum(first + offsets, self.count - 1)
            rows = self.rows(ids)
            logits = tf.matmul(self.features, rows, transpose_b=True) + self.biases(ids)
            logits = tf.where(exists, logits, -float("inf"))
            return number + 1, function(state, _Block(ids, exists, rows, logits))

        start = (tf.constant(0), state)
        going = lambda number, _: number < num_blocks  # noqa: E731
        return tf.while_loop(going, next_block, start, parallel_iterations=1)[1]

    def label_logits(self, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the logits of labels `[batch, num_labels]`, and a bound of their error.

        Logits are 0 at padding. Where errors cannot be raised, the logit of a label out of
        range is NaN.
        """
        is_label = labels != -1
        labels = errors.class_ids(labels, self.count, "labels")
        ids = tf.where(is_label, labels, 0)
        products_of = self.rows(ids) * self.features[:, tf.newaxis]
        logits = tf.reduce_sum(products_of, axis=-1) + self.biases(ids)
        error = _ROUNDING * tf.reduce_sum(tf.abs(products_of), axis=-1)
        logits = tf.where((ids >= 0) & (ids < self.count), logits, float("nan"))
        return tf.where(is_label, logits, 0.0), error


def largeout_class_statistics(
    features: tf.Tensor,
    embeddings: tf.Tensor,
    bias: Sequence[tf.Tensor],
    labels: tf.Tensor,
    given_logits: Sequence[tf.Tensor],
    first_class: tf.Tensor,
    compute_type: str | tf.DType = "float32",
    unit_length: bool = False,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the log partition function, and the logits and ranks of the labels.

    If the logit of a class differs from that of the label by less than the rounding error, they
    count as equal, and the lower id ranks first.
    """
    features, labels = _features(features), tf.convert_to_tensor(labels, tf.int64)
    first_class = tf.cast(first_class, tf.int64)
    errors.check_shape(first_class, "first_class must be a scalar: it")
    errors.check_shape(labels, "labels", features.shape[0], None)
    given_logits = [tf.convert_to_tensor(one, tf.float32) for one in given_logits]
    if given_logits:
        errors.check_shape(given_logits[0], "true_logits", *labels.shape)
        message = "labels must be at least -1, got {number} at {place}"
        labels = errors.all_true(labels >= -1, labels, message, labels)
    message = "first_class must be at least 0, and 0 unless true_logits are given, got {number}"
    good = first_class >= 0 if given_logits else first_class == 0
    first_class = errors.all_true(good, first_class, message, first_class)

    # Handles are read from the outer scope: as arguments they lose their dtype and shape.
    @tf.custom_gradient
    def statistics(features: tf.Tensor, *others: tf.Tensor) -> Any:
        given = others[1 + len(bias) :]
        classes = _Classes(features, embeddings, bias, compute_type, unit_length)
        if given:
            logits = given[0]
            error = _ROUNDING * tf.abs(logits)
        else:
            logits, error = classes.label_logits(labels)
        state = (tf.fill(tf.shape(features)[:1], -float("inf")), tf.zeros_like(labels))
        higher, lower = (logits + error)[..., tf.newaxis], (logits - error)[..., tf.newaxis]

        def add(state: tuple[tf.Tensor, tf.Tensor], block: _Block) -> tuple[Any, ...]:
            both = tf.stack([state[0], tf.reduce_logsumexp(block.logits, axis=1)])
            scores, ids = block.logits[:, tf.newaxis], block.ids + first_class
            own = labels[..., tf.newaxis]
            above = (scores > higher) | ((scores >= lower) & (ids < own))
            found = _count(above & (ids != own) & block.exists)
            return tf.reduce_logsumexp(both, axis=0), state[1] + found

        log_partition, ranks = classes.fold(add, state)
        is_finite = tf.reduce_all(tf.math.is_finite(features), axis=1)
        log_partition = tf.where(is_finite, log_partition, float("nan"))
        has_rank = (labels >= 0) & (logits > -float("inf"))
        ranks = tf.where(has_rank, ranks, tf.cast(classes.count, tf.int64))

        def gradient(d_log_partition: tf.Tensor, d_logits: tf.Tensor, _: Any) -> list[Any]:
            _check_gradient(unit_length)
            own = labels[:, :0] if given else labels
            d_features, d_embeddings, d_bias = largeout_class_softmax_gradient(
                features,
                embeddings,
                bias,
                log_partition,
                d_log_partition,
                own,
                d_logits[:, :0] if given else d_logits,
                compute_type,
            )
            return [d_features, d_embeddings, *d_bias, *([d_logits] if given else [])]

        return (log_partition, tf.identity(logits), ranks), gradient

    return statistics(features, embeddings, *bias, *given_logits)


def largeout_label_logits(
    features: tf.Tensor,
    embeddings: tf.Tensor,
    bias: Sequence[tf.Tensor],
    labels: tf.Tensor,
    compute_type: str | tf.DType = "float32",
    unit_length: bool = False,
) -> tf.Tensor:
    """Returns the logits of the labels, `[batch, num_labels]`. Their gradients are dense."""
    features, labels = _features(features), tf.convert_to_tensor(labels, tf.int64)
    errors.check_shape(labels, "labels", features.shape[0], None)

    @tf.custom_gradient
    def logits_of(features: tf.Tensor, *_: tf.Tensor) -> Any:
        classes = _Classes(features, embeddings, bias, compute_type, unit_length)

        def gradient(d_logits: tf.Tensor) -> list[tf.Tensor]:
            _check_gradient(unit_length)
            zeros = tf.zeros(tf.shape(features)[:1])
            d_features, d_embeddings, d_bias = largeout_class_softmax_gradient(
                features, embeddings, bias, zeros, zeros, labels, d_logits, compute_type
            )
            return [d_features, d_embeddings, *d_bias]

        return classes.label_logits(labels)[0], gradient

    return logits_of(features, embeddings, *bias)


def largeout_class_softmax_gradient(
    features: tf.Tensor,
    embeddings: tf.Tensor,
    bias: Sequence[tf.Tensor],
    log_partition: tf.Tensor,
    weights: tf.Tensor,
    labels: tf.Tensor,
    label_weights: tf.Tensor,
    compute_type: str | tf.DType = "float32",
) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
    """Returns the gradients of the features, the embeddings and the biases."""
    features, labels = _features(features), tf.convert_to_tensor(labels, tf.int64)
    weights, label_weights = tf.convert_to_tensor(weights), tf.convert_to_tensor(label_weights)
    label_weights = tf.where(labels != -1, label_weights, 0.0)
    is_used = (weights != 0) | tf.reduce_any(label_weights != 0, axis=1)
    features = tf.where(is_used[:, tf.newaxis], features, 0.0)
    classes = _Classes(features, embeddings, bias, compute_type)
    _, num_blocks = classes.blocks()
    d_rows, d_biases = (tf.TensorArray(tf.float32, num_blocks) for _ in range(2))
    log_partition = tf.convert_to_tensor(log_partition)[:, tf.newaxis]
    weights = weights[:, tf.newaxis]

    def add(state: tuple[Any, ...], block: _Block) -> tuple[Any, ...]:
        place, d_features, d_rows, d_biases = state
        shares = tf.exp(block.logits - log_partition) * weights
        shares = tf.where(weights != 0, shares, 0.0)
        d_bias = tf.reduce_sum(shares, axis=0)
        shares = classes.rounded(shares)
        return (
            place + 1,
            d_features + tf.matmul(shares, block.rows),
            d_rows.write(place, tf.matmul(shares, classes.features, transpose_a=True)),
            d_biases.write(place, d_bias),
        )

    start = (0, tf.zeros_like(features), d_rows, d_biases)
    _, d_features, d_rows, d_biases = classes.fold(add, start)
    ids = tf.where(labels != -1, labels, 0)
    own = label_weights[..., tf.newaxis]
    d_features += tf.reduce_sum(own * classes.rows(ids), axis=1)
    d_embeddings = tf.reshape(d_rows.stack(), [-1, features.shape[1]])[: classes.count]
    ids = tf.reshape(ids, [-1, 1])
    d_own = tf.reshape(own * classes.features[:, tf.newaxis], [-1, features.shape[1]])
    d_embeddings = tf.tensor_scatter_nd_add(d_embeddings, ids, d_own)
    if not bias:
        return d_features, d_embeddings, []
    d_bias = tf.reshape(d_biases.stack(), [-1])[: classes.count]
    d_bias = tf.tensor_scatter_nd_add(d_bias, ids, tf.reshape(label_weights, [-1]))
    return d_features, d_embeddings, [d_bias]


def largeout_class_top_k(
    features: tf.Tensor,
    embeddings: tf.Tensor,
    bias: Sequence[tf.Tensor],
    packed_codes: Sequence[tf.Tensor],
    packed_scales: Sequence[tf.Tensor],
    k: tf.Tensor,
    unit_length: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the scores and ids of the best classes, `[batch, k]`; ignores packed rows."""
    del packed_codes, packed_scales
    classes = _Classes(features, embeddings, bias, unit_length=unit_length)
    features = classes.features
    message = "features must be finite, but those of {example} are not: one is {number}"
    features = errors.all_true(tf.math.is_finite(features), features, message, features)
    last = errors.static_number(classes.count) or "the number of classes"
    message = f"k must be in [1, {last}], got {{number}}"
    known = errors.static_number(k)
    with places.host_scope():
        k = tf.convert_to_tensor(k if known is None else known, tf.int64)
        k = errors.all_true((k >= 1) & (k <= classes.count), k, message, k)
        k = tf.cast(k, tf.int32)
    shape = [tf.shape(features)[0], k]
    nothing = (tf.fill(shape, -float("inf")), tf.zeros(shape, tf.int64))

    def add(best: tuple[tf.Tensor, tf.Tensor], block: _Block) -> tuple[tf.Tensor, tf.Tensor]:
        # -inf and NaN rank last, but above classes that do not exist.
        scores = tf.where(block.logits > _LOWEST, block.logits, _LOWEST)
        scores = tf.where(block.exists, scores, -float("inf"))
        finite = _count(tf.math.is_finite(block.rows)) == tf.shape(block.rows, tf.int64)[1]
        finite &= tf.math.is_finite(classes.biases(block.ids))
        kinds = tf.where(tf.math.is_nan(block.logits), _NAN, tf.zeros_like(finite, tf.int64))
        kinds = tf.where(finite & ~tf.math.is_finite(block.logits), _LOST, kinds)
        ids = block.ids + classes.count * kinds
        scores = tf.concat([best[0], scores], axis=1)
        ids = tf.concat([best[1], ids], axis=1)
        scores, best_of = tf.math.top_k(scores, k)
        ids = tf.gather(ids, best_of, batch_dims=1)
        return tf.ensure_shape(scores, best[0].shape), tf.ensure_shape(ids, best[1].shape)

    scores, ids = classes.fold(add, nothing)
    kinds, ids = ids // classes.count, ids % classes.count
    scores = tf.where(scores > _LOWEST, scores, -float("inf"))
    scores = tf.where(kinds == _NAN, float("nan"), scores)
    is_kept = kinds != _LOST
    message = (
        "logits must not overflow, but for the features of {example} that of class {number} "
        "is infinite or NaN, though all numbers are finite: scale the features down"
    )
    scores = errors.all_true(is_kept, ids, message, scores)
    is_kept &= tf.reduce_all(tf.math.is_finite(features), axis=1, keepdims=True)
    return tf.where(is_kept, scores, float("nan")), tf.where(is_kept, ids, np.int64(-1))


def _count(bools: tf.Tensor) -> tf.Tensor:
    """Counts the true values along the last axis, int64; correct below 2^24."""
    # TensorFlow sums floats far faster than bools or integers.
    return tf.cast(tf.reduce_sum(tf.cast(bools, tf.float32), axis=-1), tf.int64)


def _features(features: tf.Tensor) -> tf.Tensor:
    features = errors.tensor(features, tf.float32, "features")
    errors.check_shape(features, "features", None, None)
    return features


def _check_gradient(unit_length: bool) -> None:
    if unit_length:
        raise ValueError(
            "Passes over the classes have no gradient with unit_length=True. Pass "
            "unit_length=False and scaled rows."
        )
