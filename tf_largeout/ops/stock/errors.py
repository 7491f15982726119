"""Checks of the arguments of ops. Where possible, errors have the text of the op library.

A step that XLA compiles cannot raise errors, nor can an op on a GPU without waiting. There the
functions below do not check numbers, and the ops return NaN or change no variable. In a step
on a GPU, numbers on the host are still checked.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.keras_internals import running_step
from tf_largeout.ops import places

_PLACES = {0: "", 1: "position {}", 2: "example {}, column {}"}


def fail(
    message: str, kind: type[tf.errors.OpError] = tf.errors.InvalidArgumentError
) -> NoReturn:
    """Raises an error of the kind that the op library raises."""
    raise kind(None, None, message)


def tensor(value: Any, dtype: tf.DType, name: str) -> tf.Tensor:
    """Converts an argument to a tensor; raises a TypeError if it has another dtype."""
    found = getattr(value, "dtype", dtype)
    if tf.is_tensor(value) and found != dtype:
        raise TypeError(f"{name} must be {dtype.name}, got a tensor of {found.name}: cast it")
    return tf.convert_to_tensor(value, dtype)


def scalars(values: Sequence[Any], dtype: tf.DType, name: str) -> list[tf.Tensor]:
    """Converts arguments to scalar tensors; raises an error if one has another shape."""
    found = [tensor(value, dtype, name) for value in values]
    for each in found:
        if each.shape.rank not in (0, None):
            fail(f"{name} must be a scalar, got {sizes(each)}")
    return found


def sizes(tensor: Any) -> str:
    """Returns a shape, or that of a tensor, for an error message, such as `[2,?]`."""
    shape = tensor if isinstance(tensor, tf.TensorShape) else tf.TensorShape(tensor.shape)
    if shape.rank is None:
        return "an unknown shape"
    return "[" + ",".join("?" if size is None else str(size) for size in shape) + "]"


def positive(**numbers: int) -> None:
    """Raises an InvalidArgumentError unless each attribute of an op is in `[1, 2^31)`."""
    for name, number in numbers.items():
        if not 1 <= number < 2**31:
            fail(f"{name} must be at least 1 and less than 2^31, got {number}")


def check_shape(tensor: Any, name: str, *expected: int | None) -> None:
    """Raises an InvalidArgumentError if a static shape is not as expected; None is any size."""
    shape = tf.TensorShape(tensor.shape)
    if not shape.is_compatible_with(expected):
        wanted = ",".join("?" if size is None else str(size) for size in expected)
        fail(f"{name} must be of shape [{wanted}], got {sizes(tensor)}")


def precondition(good: tf.Tensor, message: str) -> None:
    """Raises a FailedPreconditionError if a bool scalar is false.

    Within a function on a CPU, it is an InvalidArgumentError.
    """
    all_true(good, good, message, good, tf.errors.FailedPreconditionError)


def all_true(
    good: tf.Tensor,
    numbers: tf.Tensor,
    message: str,
    tensor: tf.Tensor,
    kind: type[tf.errors.OpError] = tf.errors.InvalidArgumentError,
) -> tf.Tensor:
    """Returns `tensor`, after a check that all elements of `good` are true.

    Args:
        good: Bools.
        numbers: The numbers that were checked, of the shape of `good`.
        message: The error, with fields `{number}`, `{place}`, `{index}` and `{example}` for
            the first false element.
        tensor: Any tensor.
        kind: The error outside functions.

    Raises:
        tf.errors.InvalidArgumentError: If an element is false, on a CPU.
    """
    if tf.executing_eagerly():
        bad = np.argwhere(~good.numpy())
        if len(bad):
            number, where = numbers.numpy()[tuple(bad[0])], [int(one) for one in bad[0]]
            place = _PLACES.get(len(where), "position {}").format(*where)
            example = f"example {where[0]}" if where else ""
            index = ", ".join(map(str, where))
            fail(message.format(number=number, place=place, example=example, index=index), kind)
    elif not running_step().is_compiled and (
        not places.first_gpu() or places.are_on_host(good)
    ):
        text = message.format(number="\0", place="some place", example="an example", index="?")
        data = text.split("\0")
        with places.scope_of(good):
            if len(data) > 1:
                lowest = tf.constant(numbers.dtype.min, numbers.dtype)
                data.insert(1, tf.reduce_max(tf.where(good, lowest, numbers)))
            # `tf.debugging.Assert` would add a `tf.cond`.
            check = tf.raw_ops.Assert(condition=tf.reduce_all(good), data=data)
            return checks.passed([check], tensor)
    return tensor


def class_ids(
    ids: tf.Tensor, num_classes: tf.Tensor, name: str, allow_padding: bool = True
) -> tf.Tensor:
    """Returns class ids that are in `[0, num_classes)`, or -1 if padding is allowed.

    Raises:
        tf.errors.InvalidArgumentError: If an id is out of range, on a CPU.
    """
    limit = static_number(num_classes) or "the number of classes"
    padding = ", or -1 for padding" if allow_padding else ""
    message = f"{name} must be class ids in [0, {limit}){padding}, got {{number}} at {{place}}"
    with places.scope_of(ids):
        inside = (ids >= (-1 if allow_padding else 0)) & (ids < num_classes)
    return all_true(inside, ids, message, ids)


def static_number(scalar: Any) -> int | None:
    """Returns the value of a scalar if it is known when the step is traced, else None."""
    number = tf.get_static_value(scalar) if tf.is_tensor(scalar) else scalar
    return None if number is None else int(number)
