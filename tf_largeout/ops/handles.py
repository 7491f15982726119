"""Resource handles of variables, for ops that read and write them in place."""

import keras
import tensorflow as tf

from tf_largeout.types import VariableOrHandle


def handle_of(variable_or_handle: VariableOrHandle, watch: bool = False) -> tf.Tensor:
    """Returns the handle of a `tf.Variable` or `keras.Variable`; returns a handle unchanged.

    Args:
        variable_or_handle: Argument of an op.
        watch: Whether a `GradientTape` should watch the variable, as differentiable ops need.
    """
    variable = variable_or_handle
    if isinstance(variable, keras.Variable):
        variable = variable.value
    if not hasattr(variable, "handle"):
        return variable
    if watch:
        # A `GradientTape` watches a variable that is read, but not its handle: read 0 rows.
        tf.gather(variable, tf.zeros([0], tf.int32))
    return variable.handle


def optional_handle(
    variable_or_handle: VariableOrHandle | None, watch: bool = False
) -> list[tf.Tensor]:
    """Returns a list with the handle, or an empty list for None."""
    return [] if variable_or_handle is None else [handle_of(variable_or_handle, watch)]
