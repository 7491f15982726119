"""Optimizer updates of only the rows that have a gradient, and merging of gradient rows.

`values` float32 `[n, ...]` are gradient rows, and `ids` int32 or int64 `[n]` are the rows of
the variable that they belong to. Ids may repeat: gradient rows with the same id are summed
first, in input order in groups of 64, and then the sums of the groups. So the result does not
depend on the number of threads or the device.

Variables are updated in place, in time independent of their number of rows. An id out of range
raises an `InvalidArgumentError` and changes no variable. On a GPU, where a check would have to
wait for the device, its gradient row is skipped instead.

The optimizer updates also take a variable in bfloat16, on a CPU, if they are given `rounding`,
int64 `[2]`: a seed and the number of the step. A row is widened to float32, updated, and
rounded at random to one of its two neighbours in bfloat16, so that its expected value is the
exact one. The random bits depend only on the seed, the step, the row and the column. The slots
are float32.
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

    With g the summed gradient of a row:
    `w -= weight_decay w; m += (g - m)(1 - beta_1); v += (g^2 - v)(1 - beta_2);
    w -= step_size m / (sqrt(v) + epsilon)`.

    Args:
        variable: w, float32 `[num_rows, ...]`, a `tf.Variable` or `keras.Variable`.
        momentum: m, like `variable`; or None to use g instead of m, as with `beta_1=0`.
        velocity: v, like `variable`.
        values: Gradient rows, float32 `[n, ...]`.
        ids: Row of each gradient row, int32 or int64 `[n]`.
        step_size: Learning rate times the bias correction
            `sqrt(1 - beta_2^step) / (1 - beta_1^step)`.
        beta_1: Decay of the first moment.
        beta_2: Decay of the second moment.
        epsilon: Added to the square root of v.
        weight_decay: Fraction of w that is subtracted from each updated row (decoupled).
        last_step: int64 variable `[num_rows]` with the number of the last step that updated
            each row (0 if none), or None. If passed, m and v of a row are first multiplied by
            beta^gap, where gap is the number of steps that have skipped the row.
        step: Number of this step, from 1. Only used with `last_step`.
        rounding: int64 `[2]`, seed and step, for a variable in bfloat16; None for float32.

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
    """Applies Adagrad (Duchi et al. 2011) to the rows in `ids`.

    With g the summed gradient of a row: `w -= weight_decay w; a += g^2;
    w -= learning_rate g / sqrt(a + epsilon)`.

    `accumulator` is a, like `variable`. The other arguments are those of `row_adam`.
    """
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
    """Applies Adagrad with one accumulator per row (Mudigere et al. 2021) to the rows in `ids`.

    With g the summed gradient of a row: `w -= weight_decay w; a += mean(g^2);
    w -= learning_rate g / sqrt(a + epsilon)`.

    `accumulator` is a, float32 `[num_rows]`. The other arguments are those of `row_adam`.
    """
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
    """Applies gradient descent with momentum (Sutskever et al. 2013) to the rows in `ids`.

    With g the summed gradient of a row: `w -= weight_decay w; m = decay m -
    learning_rate g; w += m`, or with `nesterov` `w += decay m - learning_rate g`.

    `momentum` is m, like `variable`; or None for `w -= learning_rate g`. `decay` is that of m
    per step. The other arguments are those of `row_adam`.
    """
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

    On a GPU nothing is checked; the optimizer updates skip ids that are out of range.

    Raises:
        tf.errors.InvalidArgumentError: If an id is out of range.
    """
    return gen_ops.largeout_check_row_ids(ids, tf.cast(num_rows, tf.int64))
