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

    `q`, `s` and `a` are `[batch]`, `[batch]` and `[batch, num_targets]`: the sum of the squares
    of all logits, their sum, and the logits of the targets, 0 for padding. The others are for
    `factored_output_step`. All are float64, but `version`, the value of `steps`, is int64.
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

    They are equations 14, 15 and 30 of the paper. `ids` are the classes of the targets, int64
    `[batch, num_targets]`, padded with -1.
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
    """Applies one exact step of gradient descent to all of W (section 4.8 of the paper).

    The step either changes the whole state and increments `steps`, or fails and changes
    nothing. `by_q`, `by_s` and `by_a` are the derivatives of the loss with respect to the
    `scores`. With `update=False` only the gradient is computed.

    Returns:
        The gradient of the loss with respect to the features, float64 `[batch, dim]`, for the
        state before the step (equation 33).
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
    """
    return gen_ops.largeout_factored_output_take_folds(*map(handle_of, state))


def factored_output_vectors(state: FactoredState, classes: slice = slice(None)) -> tf.Tensor:
    """Returns a slice of V, `[n, width]`, with all logged changes of basis applied.

    It changes no variable, and has no gradient. The rows are copied, unless `folds` is empty
    and all rows are requested.
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
