"""Reads and writes of rows of variables that are given by their handles.

TensorFlow's own operations for rows end the process if the dtype is wrong, and on a GPU they
read zeros for a row that does not exist. These functions check.
"""

import contextlib
from collections.abc import Sequence

import tensorflow as tf

from tf_largeout.keras_internals import variable_of_handle
from tf_largeout.ops import places
from tf_largeout.ops.stock import errors


def dtype_of(handle: tf.Tensor) -> tf.DType:
    """Returns the dtype of the variable."""
    known = variable_of_handle(handle)
    if known is not None:
        return known[0]
    if tf.executing_eagerly():
        errors.fail(f"expected the handle of one variable, a scalar, got {handle}")
    for dtype in (tf.float32, tf.bfloat16):
        with contextlib.suppress(ValueError):  # The handle is of a variable of another dtype.
            nothing = tf.zeros([0], tf.int32)
            tf.raw_ops.ResourceGather(resource=handle, indices=nothing, dtype=dtype)
            return dtype
    raise TypeError(f"expected the handle of a float32 or bfloat16 variable, got {handle}")


def static_shape(handle: tf.Tensor) -> tf.TensorShape:
    """Returns the shape of the variable, as far as it is known without running an op."""
    known = variable_of_handle(handle)
    return tf.TensorShape(None) if known is None else known[1]


def shape_of(handle: tf.Tensor) -> tf.Tensor:
    """Returns the shape of the variable, int64 `[rank]`."""
    static = static_shape(handle)
    if static.is_fully_defined():
        return tf.constant(static.as_list(), tf.int64)
    return tf.raw_ops.VariableShape(input=handle, out_type=tf.int64)


def num_rows(handle: tf.Tensor) -> tf.Tensor | int:
    """Returns the number of rows: an int, or an int64 scalar if only the step knows it."""
    static = static_shape(handle)
    known = static[0] if static.rank else None  # a constant would be on the GPU
    return shape_of(handle)[0] if known is None else known


def check(
    handle: tf.Tensor,
    name: str,
    dtypes: Sequence[tf.DType] = (tf.float32,),
    shape: tf.TensorShape | None = None,
) -> None:
    """Raises an InvalidArgumentError if a variable is known to have another dtype or shape."""
    dtype, found = dtype_of(handle), static_shape(handle)
    if dtype in dtypes and found.is_compatible_with(tf.TensorShape(shape)):
        return
    names = " or ".join(one.name for one in dtypes)
    wanted = "" if shape is None else f" of shape {errors.sizes(tf.TensorShape(shape))}"
    received = "half" if dtype == tf.float16 else dtype.name
    errors.fail(
        f"{name} must be {names}{wanted}, but is {received} of shape {errors.sizes(found)}"
    )


def check_distinct(*handles: tf.Tensor) -> None:
    """Raises an InvalidArgumentError if a variable is passed twice."""
    for place, handle in enumerate(handles):
        for first, other in enumerate(handles[:place]):
            if other is handle:
                errors.fail(
                    f"inputs {first} and {place} are the same variable: they must be different "
                    "variables"
                )


def gather(handle: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Returns rows of a variable, `[..., dim]`, in the dtype of the variable.

    An id out of range is an error on a CPU. On a GPU its row is 0, and a compiled step reads
    another row: callers that allow such ids must mask the results.
    """
    ids = _wide(ids)
    return tf.raw_ops.ResourceGather(resource=handle, indices=ids, dtype=dtype_of(handle))


def scatter(handle: tf.Tensor, ids: tf.Tensor, rows: tf.Tensor) -> tf.Operation | None:
    """Sets rows of a variable, in place. Equal ids must have equal rows."""
    return tf.raw_ops.ResourceScatterUpdate(resource=handle, indices=_wide(ids), updates=rows)


def _wide(ids: tf.Tensor) -> tf.Tensor:
    """Returns ids as int64: with int32, a GPU multiplies them by the width in 32 bits."""
    with places.scope_of(ids):
        return tf.cast(ids, tf.int64)
