"""Invalid arguments for ops that expect a variable.

The parameters of each function are the tensor that the variable should contain, and the
variables that the call has already made. It returns a variable or another object.
"""

import functools

import tensorflow as tf


def another_one(value, made):
    """Returns a variable that is already another argument of the op."""
    return made[-1] if made else tf.Variable(value)


def first_one(value, made):
    return made[0] if made else tf.Variable(value)


def stacked_handles(value, made):
    handle = tf.Variable(value).handle
    return tf.stack([handle, handle])


def no_handle(value, made):
    return tf.stack([tf.Variable(value).handle])[:0]


def uninitialised(value, made):
    return tf.raw_ops.VarHandleOp(dtype=value.dtype, shape=value.shape)


def other_resource(value, made):
    return _table().resource_handle


def tensor(value, made):
    return value


def other_type(value, made):
    return tf.Variable(tf.cast(value, tf.float64 if value.dtype == tf.float32 else tf.float32))


def other_rank(value, made):
    return tf.Variable(value[tf.newaxis])


def one_row_more(value, made):
    padding = [[0, 1]] + [[0, 0]] * (value.shape.rank - 1)
    return tf.Variable(tf.pad(value, padding) if value.shape.rank else value)


def one_row_less(value, made):
    return tf.Variable(value[:-1] if value.shape.rank else value)


def changed_shape(value, made):
    """Returns a variable whose shape differs from that of its handle."""
    variable = tf.Variable(value, shape=tf.TensorShape(None))
    variable.assign(tf.reshape(value, [-1]))
    return variable


@functools.cache
def _table():
    return tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, 0, -1, -2)


# `another_one` is listed twice, because it is the most likely mistake of users.
UNFIT_VARIABLES = (
    another_one,
    another_one,
    first_one,
    stacked_handles,
    no_handle,
    uninitialised,
    other_resource,
    tensor,
    other_type,
    other_rank,
    one_row_more,
    one_row_less,
    changed_shape,
)
