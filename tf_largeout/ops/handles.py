"""Resource handles of variables that ops read and write in place."""

import keras
import tensorflow as tf

from tf_largeout.types import VariableOrHandle


def handle_of(variable_or_handle: VariableOrHandle, watch: bool = False) -> tf.Tensor:
    """The handle of a `tf.Variable` or `keras.Variable`; a handle as it is.

    Args:
        variable_or_handle: What an op was given.
        watch: Whether to tell a `GradientTape` of the variable: for differentiable ops.
    """
    variable = variable_or_handle
    if isinstance(variable, keras.Variable):
        variable = variable.value
    if not hasattr(variable, "handle"):
        return variable
    if watch:
        # Reading no rows makes a `GradientTape` watch it, which its handle does not.
        tf.gather(variable, tf.zeros([0], tf.int32))
    return variable.handle


def optional_handle(
    variable_or_handle: VariableOrHandle | None, watch: bool = False
) -> list[tf.Tensor]:
    """A list of no handle for None, else of one."""
    return [] if variable_or_handle is None else [handle_of(variable_or_handle, watch)]
