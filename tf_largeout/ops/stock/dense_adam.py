"""Adam on a whole variable; see `ops/dense_adam_ops.py`."""

import tensorflow as tf

from tf_largeout.ops.stock import errors, tables


def largeout_dense_adam(
    variable: tf.Tensor,
    momentum: tf.Tensor,
    velocity: tf.Tensor,
    gradient: tf.Tensor,
    step_size: tf.Tensor,
    beta_1: tf.Tensor,
    beta_2: tf.Tensor,
    epsilon: tf.Tensor,
) -> None:
    """Updates the variable and its slots in place."""
    name = "a hyperparameter"
    step_size, epsilon = errors.scalars([step_size, epsilon], tf.float32, name)
    betas = errors.scalars([beta_1, beta_2], tf.float64, name)
    gradient = errors.tensor(gradient, tf.float32, "gradient")
    shape = tables.static_shape(variable)
    if not gradient.shape.is_compatible_with(shape):
        errors.fail(
            "the gradient must have the shape of the variable, "
            f"{errors.sizes(shape)}, got {errors.sizes(gradient)}"
        )
    old = []
    tables.check_distinct(variable, momentum, velocity)
    for handle in (variable, momentum, velocity):
        tables.check(handle, "the variable or an optimizer slot", shape=shape)
        old.append(tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32))
    gains = [tf.cast(1 - beta, tf.float32) for beta in betas]
    mean = old[1] + (gradient - old[1]) * gains[0]
    square = old[2] + (tf.square(gradient) - old[2]) * gains[1]
    weights = old[0] - mean * step_size / (tf.sqrt(square) + epsilon)
    for handle, value in ((variable, weights), (momentum, mean), (velocity, square)):
        tf.raw_ops.AssignVariableOp(resource=handle, value=value)
