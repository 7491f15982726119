"""Exact gradient steps of an output layer in time independent of the number of classes.

Vincent, de Brebisson and Bouthillier, "Exact gradient updates in time independent of output
size for the spherical loss family", 2015. The weights W `[num_classes, width]` equal
`V U + 1 omega^T` and are never computed. Without a bias, `width` is the layer's `dim`. With a
bias, which is the last column of W, `width` is `dim + 1`, and the ops append a 1 to the
features.
"""

from collections.abc import Iterator
from typing import NamedTuple

import tensorflow as tf

from tf_largeout.ops.devices import handle_of
from tf_largeout.ops.library import gen_ops
from tf_largeout.types import Scalar, VariableOrHandle

_BLOCK_SIZE = 2**14


class FactoredState(NamedTuple):
    """The variables of a factored output layer, or their handles.

    Attributes:
        vectors: V `[num_classes, width]`, float32 or float64. A step writes the rows of its
            targets.
        mixing: U, float64 `[width, width]`.
        inverse: Inverse of U, float64 `[width, width]`.
        offset: omega, float64 `[width]`.
        total: The sum of the rows of W, float64 `[width]` (w-bar in the paper).
        gram: `W^T W`, float64 `[width, width]` (Q in the paper).
        steps: int64 scalar, the number of steps applied to the state.
        folds: Log of the changes of basis of V, float64 `[places + 1, width + 1]` with at least
            8 places. It starts with the number of changes; unused places are 0. A step adds a
            change of basis if U would otherwise become ill-conditioned.
        seen: uint32 `[num_classes]`, the number of changes of basis that have been applied to
            each row of V.
    """

    vectors: VariableOrHandle
    mixing: VariableOrHandle
    inverse: VariableOrHandle
    offset: VariableOrHandle
    total: VariableOrHandle
    gram: VariableOrHandle
    steps: VariableOrHandle
    folds: VariableOrHandle
    seen: VariableOrHandle


class FactoredScores(NamedTuple):
    """The statistics of the logits from which a loss is computed, and intermediate results.

    Attributes:
        q: float64 `[batch]`, the sum of the squares of all logits of each example.
        s: float64 `[batch]`, the sum of all logits of each example.
        a: float64 `[batch, num_targets]`, the logits of the targets; 0 for padding.
        gram_features: float64 `[batch, width]`, for `factored_output_step`.
        mixed_features: float64 `[batch, width]`, for `factored_output_step`.
        version: int64 scalar, the value of `steps` when the scores were computed.
    """

    q: tf.Tensor
    s: tf.Tensor
    a: tf.Tensor
    gram_features: tf.Tensor
    mixed_features: tf.Tensor
    version: tf.Tensor


def factored_output_scores(
    features: tf.Tensor, ids: tf.Tensor, state: FactoredState
) -> FactoredScores:
    """Computes the values that spherical losses need, in O(batch width^2) time.

    Args:
        features: float32 or float64 `[batch, dim]`, finite; `dim = width - 1` with a bias.
        ids: Classes of the targets, int64 `[batch, num_targets]`, padded with -1.
        state: Variables of the layer.

    Returns:
        `FactoredScores`; equations 14, 15 and 30 of the paper.

    Raises:
        tf.errors.InvalidArgumentError: If features are not finite, an id is out of range, or a
            shape does not match.
    """
    return FactoredScores(
        *gen_ops.largeout_factored_output_scores(features, ids, *map(handle_of, state))
    )


def factored_output_step(
    features: tf.Tensor,
    ids: tf.Tensor,
    by_q: tf.Tensor,
    by_s: tf.Tensor,
    by_a: tf.Tensor,
    scores: FactoredScores,
    learning_rate: Scalar,
    state: FactoredState,
    update: bool = True,
    min_pivot: float = 1e-4,
) -> tf.Tensor:
    """Applies one exact step of gradient descent to all of W.

    The time is O(batch width^2 + batch^2 width), independent of the number of classes (section
    4.8 of the paper). The step either changes the whole state and increments `steps`, or fails
    and changes nothing. An empty batch changes nothing.

    Singular values of U that have moved far from 1 are set to 1 (section 5.2); the limit is at
    most a factor of `30 sqrt(width)`. Rows of V are adjusted when a step reads or writes them,
    or all at once when the log `folds` is full.

    Args:
        features: float32 or float64 `[batch, dim]`, finite; `dim = width - 1` with a bias.
        ids: Classes of the targets, int64 `[batch, num_targets]`, padded with -1.
        by_q: Derivative of the loss with respect to `scores.q`, float64 `[batch]`.
        by_s: Derivative with respect to `scores.s`, float64 `[batch]`.
        by_a: Derivative with respect to `scores.a`, float64 `[batch, num_targets]`, 0 for
            padding. If an example has a class several times, their derivatives are added.
        scores: Result of `factored_output_scores` for these features, ids and state.
        learning_rate: Finite, at least 0.
        state: Variables of the layer, updated in place.
        update: Whether to change the state. With False only the gradient is computed. Defaults
            to True.
        min_pivot: A step fails if a pivot of `I - 2 learning_rate H^T H diag(by_q)` is below
            this positive number; the columns of H are the features. A pivot of `10^-n` costs
            the inverse of U about n digits. If the batch has more than `width` examples, the
            matrix is `I - 2 learning_rate H diag(by_q) H^T`, which has the same determinant.
            Defaults to 1e-4.

    Returns:
        The gradient of the loss with respect to the features, float64 `[batch, dim]`, for the
        state before the step (equation 33).

    Raises:
        tf.errors.InvalidArgumentError: If the step would make U singular or a number infinite;
            a derivative or the learning rate is not finite; the learning rate is negative; the
            state has changed since the scores were computed; or a shape does not match.
    """
    return gen_ops.largeout_factored_output_step(
        features,
        ids,
        by_q,
        by_s,
        by_a,
        scores.gram_features,
        scores.mixed_features,
        scores.version,
        learning_rate,
        *map(handle_of, state),
        update=update,
        min_pivot=min_pivot,
    )


def factored_output_take_folds(state: FactoredState) -> tf.Operation | None:
    """Applies all logged changes of basis to V, so that all rows satisfy `W = V U + 1 omega^T`.

    Call it before code reads V directly. It makes one pass over V and empties `folds`; it does
    nothing if `folds` is empty. W does not change, except for rounding.

    Args:
        state: Variables of the layer, updated in place.

    Returns:
        The operation (None when executing eagerly).
    """
    return gen_ops.largeout_factored_output_take_folds(*map(handle_of, state))


def factored_output_vectors(state: FactoredState, classes: slice = slice(None)) -> tf.Tensor:
    """Returns rows of V with all logged changes of basis applied. Changes no variable.

    The rows are copied, unless `folds` is empty and all rows are requested. Not differentiable.

    Args:
        state: Variables of the layer.
        classes: Slice of the rows to return. Defaults to all.

    Returns:
        `[n, width]`, in the dtype of V.
    """
    vectors, seen = map(tf.convert_to_tensor, (state.vectors, state.seen))
    if classes != slice(None):
        vectors, seen = vectors[classes], seen[classes]
    folds = tf.convert_to_tensor(state.folds)
    return tf.stop_gradient(gen_ops.largeout_factored_output_vectors(vectors, folds, seen))


def current_blocks(state: FactoredState) -> Iterator[tf.Tensor]:
    """Yields the rows of `factored_output_vectors` in blocks, without a copy of all of them."""
    for classes in blocks_of(state.vectors.shape[0]):
        yield factored_output_vectors(state, classes)


def blocks_of(num_classes: int) -> Iterator[slice]:
    """Yields consecutive slices that cover all classes."""
    for first in range(0, num_classes, _BLOCK_SIZE):
        yield slice(first, first + _BLOCK_SIZE)
