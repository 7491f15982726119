"""`as_float32`: an argument that must contain numbers, as a tensor."""

import tensorflow as tf

from tf_largeout.types import TensorLike


def as_float32(name: str, value: TensorLike, shape: str) -> tf.Tensor:
    """Returns an argument as a float32 tensor.

    Args:
        name: Name of the argument, for the message.
        value: Its value.
        shape: The expected shape, such as "[n, dim]", for the message.

    Raises:
        ValueError: If the value is not an array of real numbers.
    """
    try:
        array = tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{name}` must be an array of numbers, {shape}. Received: a value of type "
            f"{type(value).__name__}: {error}"
        ) from error
    if array.dtype.is_floating or array.dtype.is_integer or array.dtype.is_bool:
        return tf.cast(array, tf.float32)
    raise ValueError(
        f"`{name}` must be an array of numbers, {shape}. Received: dtype {array.dtype.name}, "
        f"of shape {array.shape}."
    )
