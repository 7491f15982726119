"""Optimizer updates of only the rows that have a gradient, and merging of gradient rows.

Gradient rows with the same id are summed first, in input order in groups of 64, and then the
sums of the groups. So the result does not depend on the number of threads or the device.
Variables are updated in place, in time independent of their number of rows.
"""

import tensorflow as tf

from tf_largeout.ops.devices import handle_of, optional_handle
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
    rounding: tf.Tensor | None = None,
) -> tf.Operation | None:
    """Applies Adam to the rows in `ids` (Kingma & Ba 2014, the form before section 2.1).

    `step_size` is the learning rate times the bias correction
    `sqrt(1 - beta_2^step) / (1 - beta_1^step)`. A `momentum` of None uses the gradient instead,
    as with `beta_1=0`. `last_step` and `step` are only for decay by skipped steps. `rounding`,
    int64 `[2]`, is for a variable in bfloat16: a seed and the number of the step.

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
        rounding=[] if rounding is None else [rounding],
    )


def row_adagrad(
    variable: VariableOrHandle,
    accumulator: VariableOrHandle,
    values: tf.Tensor,
    ids: tf.Tensor,
    learning_rate: Scalar,
    epsilon: float = 1e-7,
    weight_decay: Scalar = 0.0,
    rounding: tf.Tensor | None = None,
) -> tf.Operation | None:
    """Applies Adagrad (Duchi et al. 2011) to the rows in `ids`; see `row_adam`."""
    slots = handle_of(variable), handle_of(accumulator)
    rates = learning_rate, epsilon, weight_decay
    roundings = [] if rounding is None else [rounding]
    return gen_ops.largeout_row_adagrad(*slots, values, ids, *rates, roundings)


def row_rowwise_adagrad(
    variable: VariableOrHandle,
    accumulator: VariableOrHandle,
    values: tf.Tensor,
    ids: tf.Tensor,
    learning_rate: Scalar,
    epsilon: float = 1e-7,
    weight_decay: Scalar = 0.0,
    rounding: tf.Tensor | None = None,
) -> tf.Operation | None:
    """Applies Adagrad with one accumulator per row (Mudigere et al. 2021); see `row_adam`."""
    slots = handle_of(variable), handle_of(accumulator)
    rates = learning_rate, epsilon, weight_decay
    roundings = [] if rounding is None else [rounding]
    return gen_ops.largeout_row_rowwise_adagrad(*slots, values, ids, *rates, roundings)


def row_momentum(
    variable: VariableOrHandle,
    momentum: VariableOrHandle | None,
    values: tf.Tensor,
    ids: tf.Tensor,
    learning_rate: Scalar,
    decay: float = 0.9,
    nesterov: bool = False,
    weight_decay: Scalar = 0.0,
    rounding: tf.Tensor | None = None,
) -> tf.Operation | None:
    """Applies gradient descent with momentum (Sutskever et al. 2013), or without for None."""
    slots = handle_of(variable), optional_handle(momentum)
    rates = learning_rate, decay, weight_decay
    roundings = [] if rounding is None else [rounding]
    return gen_ops.largeout_row_momentum(
        *slots, values, ids, *rates, roundings, nesterov=nesterov
    )


def merge_rows(values: tf.Tensor, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Sums the gradient rows `values`, float32 `[n, ...]`, that have the same id, `[n]`.

    Returns:
        `(merged_values, unique_ids)`: `[u, ...]` and `[u]`, in ascending order of ids. On a GPU
        both are padded to n rows, with zeros and the id -1, which the optimizer updates skip.
    """
    return gen_ops.largeout_merge_rows(values, ids)


def check_row_ids(ids: tf.Tensor, num_rows: int | tf.Tensor) -> tf.Tensor:
    """Returns `ids`, int32 or int64 `[n]`, and checks that they are in `[0, num_rows)`.

    On a GPU nothing is checked; the optimizer updates skip ids that are out of range. On a CPU
    these are a `tf.errors.InvalidArgumentError`.
    """
    return gen_ops.largeout_check_row_ids(ids, tf.cast(num_rows, tf.int64))
