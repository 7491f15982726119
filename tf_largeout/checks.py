"""Checks of tensors. An operation that reads a checked tensor runs only if the check passes.

A step must read the tensors that these functions return. It is not enough to create operations
under `tf.control_dependencies`. TensorFlow's graph optimizer replaces some operations by their
input, for example a `tf.reshape` to the same shape, and drops their control dependencies. It
keeps those of a `tf.identity` and of an assignment.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tf_largeout.keras_internals import NO_TRACE


def require(condition: tf.Tensor, message: Sequence[Any]) -> Any:
    """Returns an assertion for `passed`, whose error comes without a trace of the graph.

    Args:
        condition: Bool scalar.
        message: Strings and tensors, which the error prints.

    Raises:
        tf.errors.InvalidArgumentError: When the step runs, if the condition is false.
    """
    return tf.debugging.Assert(condition, [*message, NO_TRACE])


def passed(checks: Iterable[Any], tensor: tf.Tensor) -> tf.Tensor:
    """Returns `tensor`. Operations can read it only after all `checks` have passed.

    The gradient passes through.

    Args:
        checks: Assertions, or tensors that must be computed first. None is ignored: in eager
            mode, an assertion is None.
        tensor: Any tensor.
    """
    awaited = []
    for check in checks:
        if check is not None:
            awaited.append(check)
    with tf.control_dependencies(awaited):
        return tf.identity(tensor)


def finite(tensor: tf.Tensor, message: str) -> tf.Tensor:
    """Returns `tensor`, checked to be finite.

    Its gradient is not checked: with loss scaling it may overflow, and then the optimizer skips
    the step.

    Args:
        tensor: Floats.
        message: The start of the error message.

    Raises:
        tf.errors.InvalidArgumentError: When the step runs, if a number is NaN or infinite.
    """
    # `tf.custom_gradient` would keep the graph of each trace in memory for ever.
    numbers = tf.stop_gradient(tensor)
    return passed([tf.debugging.check_numerics(numbers, f"{message} {NO_TRACE}")], tensor)
