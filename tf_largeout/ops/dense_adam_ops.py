"""An optimizer step on all of a variable, in one pass over memory."""

import tensorflow as tf

from tf_largeout.ops.handles import handle_of
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
    """Adam on all of a variable, in place.

    `m += (g - m)(1 - beta_1)`, `v += (g^2 - v)(1 - beta_2)`,
    `w -= step_size m / (sqrt(v) + epsilon)`: to the bit what single operations of TensorFlow
    give, which read and write memory about four times as much. On the CPU.

    Args:
        variable: float32 variable w of any shape, or its handle.
        momentum: m, like `variable`.
        velocity: v, like `variable`.
        gradient: g, float32, of the shape of `variable`.
        step_size: learning rate with the bias corrections,
            `learning_rate sqrt(1 - beta_2^step) / (1 - beta_1^step)`.
        beta_1: decay of m.
        beta_2: decay of v.
        epsilon: added to the root of v.

    Raises:
        tf.errors.InvalidArgumentError: If a shape or a type is none of these, or one variable
            is given twice.
    """
    gen_ops.largeout_dense_adam(
        handle_of(variable),
        handle_of(momentum),
        handle_of(velocity),
        gradient,
        step_size,
        beta_1,
        beta_2,
        epsilon,
    )
