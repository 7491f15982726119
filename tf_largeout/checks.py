"""Checks of tensors. An operation that reads a checked tensor runs only if the check passes.

A step must read the tensors that these functions return. It is not enough to create operations
under `tf.control_dependencies`. TensorFlow's graph optimizer replaces some operations by their
input, for example a `tf.reshape` to the same shape, and drops their control dependencies. It
keeps those of a `tf.identity` and of an assignment.

A step that XLA compiles cannot raise an error. If a check fails there, all elements of the
checked tensor become NaN or, for integers, the largest number of the type, which is not a valid
id. So the loss and the gradients become NaN, and our optimizers then change nothing.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tf_largeout.keras_internals import NO_TRACE, running_step


def require(condition: tf.Tensor, message: Sequence[Any]) -> Any:
    """Returns a check for `passed`, whose error comes without a trace of the graph.

    Args:
        condition: Bool scalar.
        message: Strings and tensors, which the error prints.

    Raises:
        tf.errors.InvalidArgumentError: When the step runs, if the condition is false. Not in a
            step that XLA compiles.
    """
    if tf.inside_function() and running_step().is_compiled:
        return condition
    return tf.debugging.Assert(condition, [*message, NO_TRACE])


def passed(checks: Iterable[Any], tensor: tf.Tensor) -> tf.Tensor:
    """Returns `tensor`. Operations can read it only after all `checks` have passed.

    The gradient passes through.

    Args:
        checks: Results of `require` and `finite`, or tensors that must be computed first. None
            is ignored, because in eager mode an assertion is None.
        tensor: Any tensor.
    """
    awaited = []
    for check in checks:
        if check is not None:
            awaited.append(check)
    if tf.inside_function() and running_step().is_compiled:
        return _if_passed(awaited, tensor)
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
        tf.errors.InvalidArgumentError: When the step runs, if a number is NaN or infinite. Not
            in a step that XLA compiles.
    """
    if tf.inside_function() and running_step().is_compiled:
        return _if_passed([tensor], tensor)
    # `tf.custom_gradient` would keep the graph of each trace in memory for ever.
    numbers = tf.stop_gradient(tensor)
    return passed([tf.debugging.check_numerics(numbers, f"{message} {NO_TRACE}")], tensor)


def are_all_finite(tensors: Iterable[tf.Tensor]) -> tf.Tensor:
    """Returns whether all numbers are finite, a bool scalar."""
    found = tf.constant(True)
    for one in tensors:
        found &= tf.reduce_all(tf.math.is_finite(one))
    return found


def valid_only_if(is_valid: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
    """Returns `tensor`, floats or integers, if the bool scalar `is_valid` is true.

    If not, floats and their gradients become NaN, and integers the largest of their type.
    """
    if tensor.dtype.is_floating:
        one, nan = (tf.constant(number, tensor.dtype) for number in (1.0, float("nan")))
        return tensor * tf.where(is_valid, one, nan)
    return tf.where(is_valid, tensor, tensor.dtype.max)


def _if_passed(checks: Iterable[Any], tensor: tf.Tensor) -> tf.Tensor:
    """Implements `passed` for steps that XLA compiles."""
    of_numbers, is_valid = [], tf.constant(True)
    for check in checks:
        if tf.is_tensor(check) and check.dtype.is_bool:
            is_valid &= check
        elif tf.is_tensor(check) and check.dtype.is_floating:
            of_numbers.append(check)
    return valid_only_if(is_valid & are_all_finite(of_numbers), tensor)
