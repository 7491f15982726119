"""Optimizer steps that touch only the rows with a gradient, and merging of repeated rows.

In all functions `values` float32 `[n, ...]` are gradient rows and `ids` int32 or int64
`[n]` the rows they belong to. Ids may repeat: gradients of the same row are summed
first, 64 at a time in input order and then these sums, so that the result does not
depend on threads or on the device. The variables are updated in place, whatever their
number of rows; an id out of range is an `InvalidArgumentError` and leaves every variable as
it was. On a GPU, whose ids can only be looked at by waiting for it, the row of such an id is
skipped instead.
"""

import tensorflow as tf

from tf_largeout.ops.handles import handle_of, optional_handle
from tf_largeout.ops.library import gen_ops
from tf_largeout.types import Scalar, VariableOrHandle


def row_adam(
    variable: VariableOrHandle,
    momentum: VariableOrHandle | None,
    velocity: VariableOrHandle,
    values: tf.Tensor,
    ids: tf.Tensor,
    step_size: Scalar,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    weight_decay: Scalar = 0.0,
    last_step: VariableOrHandle | None = None,
    step: int | tf.Tensor = 0,
) -> tf.Operation | None:
    """Adam (Kingma & Ba 2014, the form before section 2.1) on the rows in `ids`.

    With g the summed gradient of a row:
    `w -= weight_decay w; m += (g - m)(1 - beta_1); v += (g^2 - v)(1 - beta_2);
    w -= step_size m / (sqrt(v) + epsilon)`.

    Args:
        variable: w, float32 `[num_rows, ...]`, a `tf.Variable` or `keras.Variable`.
        momentum: m, like `variable`; or None: g stands in its place, as with `beta_1=0`.
        velocity: v, like `variable`.
        values: gradient rows.
        ids: row of each gradient row.
        step_size: learning rate times the bias correction
            `sqrt(1 - beta_2^step) / (1 - beta_1^step)`.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: added to the root of v.
        weight_decay: share of w that a touched row loses (decoupled).
        last_step: None, or int64 `[num_rows]` variable with the last step of each row (0:
            none). m and v are then first multiplied by beta^gap, where gap is the
            number of steps since then that skipped the row.
        step: number of this step, from 1; used with `last_step` only.

    Returns:
        The operation (None when executing eagerly).
    """
    return gen_ops.largeout_row_adam(
        variable=handle_of(variable),
        momentum=optional_handle(momentum),
        velocity=handle_of(velocity),
        last_step=optional_handle(last_step),
        values=values,
        ids=ids,
        step=tf.cast(step, tf.int64),
        step_size=step_size,
        beta_1=tf.cast(beta_1, tf.float64),
        beta_2=tf.cast(beta_2, tf.float64),
        epsilon=epsilon,
        weight_decay=weight_decay,
    )


def row_adagrad(
    variable: VariableOrHandle,
    accumulator: VariableOrHandle,
    values: tf.Tensor,
    ids: tf.Tensor,
    learning_rate: Scalar,
    epsilon: float = 1e-7,
    weight_decay: Scalar = 0.0,
) -> tf.Operation | None:
    """Adagrad (Duchi et al. 2011) on the rows in `ids`.

    With g the summed gradient of a row: `w -= weight_decay w; a += g^2;
    w -= learning_rate g / sqrt(a + epsilon)`.

    Args:
        variable: w, float32 `[num_rows, ...]`.
        accumulator: a, like `variable`.
        values: gradient rows.
        ids: row of each gradient row.
        learning_rate: step length.
        epsilon: added to a under the root.
        weight_decay: share of w that a touched row loses (decoupled).

    Returns:
        The operation (None when executing eagerly).
    """
    return gen_ops.largeout_row_adagrad(
        variable=handle_of(variable),
        accumulator=handle_of(accumulator),
        values=values,
        ids=ids,
        learning_rate=learning_rate,
        epsilon=epsilon,
        weight_decay=weight_decay,
    )


def row_rowwise_adagrad(
    variable: VariableOrHandle,
    accumulator: VariableOrHandle,
    values: tf.Tensor,
    ids: tf.Tensor,
    learning_rate: Scalar,
    epsilon: float = 1e-7,
    weight_decay: Scalar = 0.0,
) -> tf.Operation | None:
    """Adagrad with one accumulator per row (Mudigere et al. 2021), on the rows in `ids`.

    With g the summed gradient of a row: `w -= weight_decay w; a += mean(g^2);
    w -= learning_rate g / sqrt(a + epsilon)`.

    Args:
        variable: w, float32 `[num_rows, ...]`.
        accumulator: a, float32 `[num_rows]`.
        values: gradient rows.
        ids: row of each gradient row.
        learning_rate: step length.
        epsilon: added to a under the root.
        weight_decay: share of w that a touched row loses (decoupled).

    Returns:
        The operation (None when executing eagerly).
    """
    return gen_ops.largeout_row_rowwise_adagrad(
        variable=handle_of(variable),
        accumulator=handle_of(accumulator),
        values=values,
        ids=ids,
        learning_rate=learning_rate,
        epsilon=epsilon,
        weight_decay=weight_decay,
    )


def row_momentum(
    variable: VariableOrHandle,
    momentum: VariableOrHandle | None,
    values: tf.Tensor,
    ids: tf.Tensor,
    learning_rate: Scalar,
    decay: float = 0.9,
    nesterov: bool = False,
    weight_decay: Scalar = 0.0,
) -> tf.Operation | None:
    """Gradient descent with momentum (Sutskever et al. 2013) on the rows in `ids`.

    With g the summed gradient of a row: `w -= weight_decay w; m = decay m -
    learning_rate g; w += m`, or with `nesterov` `w += decay m - learning_rate g`.

    Args:
        variable: w, float32 `[num_rows, ...]`.
        momentum: m, like `variable`, or None: `w -= learning_rate g`.
        values: gradient rows.
        ids: row of each gradient row.
        learning_rate: step length.
        decay: factor of the momentum from step to step.
        nesterov: whether w moves by the momentum of the next step.
        weight_decay: share of w that a touched row loses (decoupled).

    Returns:
        The operation (None when executing eagerly).
    """
    return gen_ops.largeout_row_momentum(
        variable=handle_of(variable),
        momentum=optional_handle(momentum),
        values=values,
        ids=ids,
        learning_rate=learning_rate,
        decay=decay,
        weight_decay=weight_decay,
        nesterov=nesterov,
    )


def merge_rows(values: tf.Tensor, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Sums the rows that have the same id.

    Args:
        values: float32 `[n, ...]`.
        ids: int32 or int64 `[n]`, not negative.

    Returns:
        `(merged_values, unique_ids)`: `[u, ...]` and `[u]`, ids ascending; row i is the
        sum of the rows with id `unique_ids[i]`. On a GPU both have n rows: those, then
        zeros with id -1, which the optimizer steps skip.
    """
    return gen_ops.largeout_merge_rows(values, ids)


def check_row_ids(ids: tf.Tensor, num_rows: int | tf.Tensor) -> tf.Tensor:
    """Returns `ids`, checked.

    On a GPU the ids go on unchecked; the optimizer steps skip what is no row.

    Args:
        ids: int32 or int64 `[n]`.
        num_rows: Number of rows of the variable they belong to.

    Returns:
        `ids`.

    Raises:
        tf.errors.InvalidArgumentError: If an id is not in `[0, num_rows)`.
    """
    return gen_ops.largeout_check_row_ids(ids, tf.cast(num_rows, tf.int64))
