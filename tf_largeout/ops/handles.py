"""Resource handles of variables that ops read in place."""

import tensorflow as tf


def handle_of(variable_or_handle):
    """The handle of a `tf.Variable`, which a `GradientTape` is told of; handles as they are."""
    if not hasattr(variable_or_handle, "handle"):
        return variable_or_handle
    # Reading no rows tells a `GradientTape` to watch the variable, which its handle does not.
    tf.gather(variable_or_handle, tf.zeros([0], tf.int32))
    return variable_or_handle.handle


def optional_handle(variable_or_handle):
    """A list of no handle for None, else of one."""
    return [] if variable_or_handle is None else [handle_of(variable_or_handle)]
