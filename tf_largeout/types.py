"""Types that many signatures share.

TensorFlow and Keras carry no complete types, so what is said here is for people, for editors
and for the reference; a type checker without stubs takes most of it for `Any`.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import keras
import tensorflow as tf

# What `tf.convert_to_tensor` takes: a tensor, an array, a list, a number.
TensorLike: TypeAlias = Any

# A number, or a tensor of rank 0.
Scalar: TypeAlias = float | tf.Tensor

Shape: TypeAlias = tuple[int | None, ...]
Config: TypeAlias = dict[str, Any]
DTypeLike: TypeAlias = str | keras.DTypePolicy
Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices
Variable: TypeAlias = tf.Variable | keras.Variable

# What ops that read and write a variable in place take.
VariableOrHandle: TypeAlias = tf.Variable | keras.Variable | tf.Tensor

# What gives a weight its first values, and what `keras.initializers.get` makes one of.
Initializer: TypeAlias = Callable[..., Any]
InitializerLike: TypeAlias = str | Config | Initializer

LearningRate: TypeAlias = (
    float | keras.optimizers.schedules.LearningRateSchedule | Callable[[], float]
)
