"""Adam updates of a whole variable in one pass over memory."""

import tensorflow as tf

from tf_largeout.ops.devices import handle_of
from tf_largeout.ops.library import gen_ops
from tf_largeout.types import VariableOrHandle


def dense_adam(
    variable: VariableOrHandle,
    momentum: VariableOrHandle,
    velocity: VariableOrHandle,
    gradient: tf.Tensor,
    step_size: float | tf.Tensor,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
) -> None:
    """Applies Adam to a whole variable, in place, on the CPU.

    `m += (g - m)(1 - beta_1)`, `v += (g^2 - v)(1 - beta_2)`,
    `w -= step_size m / (sqrt(v) + epsilon)`. The result is bit-identical to that of separate
    TensorFlow operations, which move about four times as many bytes. `variable`, `momentum`,
    `velocity` and `gradient` are w, m, v and g, float32 of one shape. `step_size` includes the
    bias corrections, `learning_rate sqrt(1 - beta_2^step) / (1 - beta_1^step)`.
    """
    handles = map(handle_of, (variable, momentum, velocity))
    gen_ops.largeout_dense_adam(*handles, gradient, step_size, beta_1, beta_2, epsilon)
