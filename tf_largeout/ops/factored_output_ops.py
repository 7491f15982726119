"""An output layer whose exact gradient step does not depend on the number of classes.

Vincent, de Brebisson and Bouthillier, "Exact gradient updates in time independent of output
size for the spherical loss family", 2015. The weights `W` `[num_classes, width]` are
`V U + 1 omega^T` and never formed. `width` is the layer's `dim`; or with a bias, which is the
last column of W, one more: then the ops append a 1 to the features.
"""

from collections.abc import Iterator
from typing import NamedTuple

import tensorflow as tf

from tf_largeout.ops.handles import handle_of
from tf_largeout.ops.library import gen_ops
from tf_largeout.types import Scalar, VariableOrHandle

_ROWS_OF_A_BLOCK = 2**14


class FactoredState(NamedTuple):
    """The variables of a factored output layer, or their handles.

    Attributes:
        vectors: V `[num_classes, width]`, float32 or float64. A step writes rows of targets.
        mixing: U `[width, width]`, float64, like those that follow.
        inverse: Inverse of U, `[width, width]`.
        offset: omega `[width]`.
        total: The sum of the rows of W, `[width]` (w-bar in the paper).
        gram: `W^T W` `[width, width]` (Q in the paper).
        steps: int64 scalar, how many steps made the state.
        folds: Changes of the basis of V, in a log of at least 8 places that begins with their
            number: float64 `[places + 1, width + 1]`, zeros where there are none. A step makes
            one where U would become ill-conditioned.
        seen: uint32 `[num_classes]`, how many of them each row of V has been through.
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
    """What a loss is computed from, and what a step needs again.

    Attributes:
        q: float64 `[batch]`, the sum of the squares of all logits of each row.
        s: float64 `[batch]`, their sum.
        a: float64 `[batch, num_targets]`, the logits of the targets; 0 at padding.
        gram_features: float64 `[batch, width]`.
        mixed_features: float64 `[batch, width]`.
        version: int64 scalar, the number of steps at that time.
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
    """What losses of the spherical family need of the logits, in O(batch width^2).

    Args:
        features: float32 or float64 `[batch, dim]`, with a bias `dim = width - 1`; finite.
        ids: Classes of the targets, int64 `[batch, num_targets]`, padded with -1.
        state: The layer.

    Returns:
        `FactoredScores`; equations 14, 15 and 30 of the paper.

    Raises:
        tf.errors.InvalidArgumentError: If features are not finite, an id is out of range, or a
            shape does not fit.
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
    """A step of plain gradient descent on all of W, exactly, whatever the number of classes.

    O(batch width^2 + batch^2 width); section 4.8 of the paper. The state changes as a whole or,
    where the step is refused, not at all; `steps` counts it. An empty batch changes nothing.

    Singular values of U that come to be far from 1, at most by a factor of `30 sqrt(width)`,
    are set to 1 (section 5.2). The rows of V follow when a step reads or writes them, all at
    once where `folds` has no room.

    Args:
        features: As `factored_output_scores`.
        ids: As there.
        by_q: The derivative of the loss by `scores.q`, float64 `[batch]`.
        by_s: By `scores.s`, float64 `[batch]`.
        by_a: By `scores.a`, float64 `[batch, num_targets]`, 0 at padding. A class that a row
            has several times counts with the sum of its derivatives.
        scores: What `factored_output_scores` returned for these features, ids and state.
        learning_rate: Finite, at least 0.
        state: The layer, which is written.
        update: Whether to change the state; if not, the gradient is all.
        min_pivot: The smallest pivot of `I - 2 learning_rate H^T H diag(by_q)` (H has the
            features as columns) of a step that is made, above 0: the inverse of U loses about
            as many digits as this has zeros. In a batch of more rows than `width` the matrix
            is `I - 2 learning_rate H diag(by_q) H^T`, which has the same determinant.

    Returns:
        The derivative of the loss by the features, float64 `[batch, dim]`, of the state before
        the step (equation 33).

    Raises:
        tf.errors.InvalidArgumentError: If the step would make U singular or a number infinite;
            a derivative or the learning rate is not finite, or that is negative; the state has
            changed since the scores; or an argument does not fit as above.
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
    """Brings all rows of V up to date, so that they are `V` of `V U + 1 omega^T`.

    For what reads V itself. It is one pass over V, or nothing where `folds` is empty, as it is
    afterwards; the weights stay as they are, but for rounding.

    Args:
        state: The layer, which is written.
    """
    return gen_ops.largeout_factored_output_take_folds(*map(handle_of, state))


def factored_output_vectors(state: FactoredState, classes: slice = slice(None)) -> tf.Tensor:
    """The rows of V up to date, `[n, width]`; the layer is only read.

    A copy of these rows, but where `folds` is empty and they are all. It has no gradient.

    Args:
        state: The layer.
        classes: Which rows.
    """
    vectors, seen = map(tf.convert_to_tensor, (state.vectors, state.seen))
    if classes != slice(None):
        vectors, seen = vectors[classes], seen[classes]
    folds = tf.convert_to_tensor(state.folds)
    return tf.stop_gradient(gen_ops.largeout_factored_output_vectors(vectors, folds, seen))


def current_blocks(state: FactoredState) -> Iterator[tf.Tensor]:
    """The rows of V, up to date, in blocks: nothing copies all of them, nothing is written."""
    for classes in blocks_of(state.vectors.shape[0]):
        yield factored_output_vectors(state, classes)


def blocks_of(num_classes: int) -> Iterator[slice]:
    """Classes in blocks."""
    for first in range(0, num_classes, _ROWS_OF_A_BLOCK):
        yield slice(first, first + _ROWS_OF_A_BLOCK)
