"""Types that many signatures share.

TensorFlow and Keras have no complete type annotations. These types are for readers, editors and
the reference; a type checker without stubs treats most of them as `Any`.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import keras
import tensorflow as tf

# What `tf.convert_to_tensor` accepts: a tensor, an array, a list, a number.
TensorLike: TypeAlias = Any

# A number, or a tensor of rank 0.
Scalar: TypeAlias = float | tf.Tensor

Shape: TypeAlias = tuple[int | None, ...]
Config: TypeAlias = dict[str, Any]
DTypeLike: TypeAlias = str | keras.DTypePolicy
Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices
Variable: TypeAlias = tf.Variable | keras.Variable

# An elementwise function, such as the identity.
Elementwise: TypeAlias = Callable[[tf.Tensor], tf.Tensor]

# Arguments of ops that read and write a variable in place.
VariableOrHandle: TypeAlias = tf.Variable | keras.Variable | tf.Tensor

# An initializer of a weight, and what `keras.initializers.get` accepts.
Initializer: TypeAlias = Callable[..., Any]
InitializerLike: TypeAlias = str | Config | Initializer

LearningRate: TypeAlias = (
    float | keras.optimizers.schedules.LearningRateSchedule | Callable[[], float]
)


class AddWeight(Protocol):
    """A function that creates a weight of the owner of a search structure.

    The weight is not trained.
    """

    def __call__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        initializer: InitializerLike,
        on_host: bool = False,
    ) -> keras.Variable:
        """Creates a weight.

        Args:
            name: Name of the weight, unique within the structure.
            shape: Shape of the weight.
            dtype: Type of the weight, such as "uint32".
            initializer: A Keras initializer or its name.
            on_host: Whether the weight is on the CPU. Otherwise it is on the device of the
                rows.
        """
