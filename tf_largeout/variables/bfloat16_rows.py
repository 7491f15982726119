"""Class rows in bfloat16, which row-sparse optimizers update with stochastic rounding."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.types import Initializer, InitializerLike, Shape
from tf_largeout.variables.initializers import PartInitializer, has_parts

_BLOCK = 2**24  # values that are float32 at a time
_MARK = "_largeout_bfloat16_rows"


class RoundedInitializer:
    """An initializer that rounds the float32 values of another one to the nearest bfloat16.

    Args:
        initializer: The other initializer.
    """

    def __init__(self, initializer: Initializer) -> None:
        self._initializer = initializer

    def __call__(self, shape: Shape, dtype: str | None = None) -> tf.Tensor:
        return tf.cast(self._initializer(shape, "float32"), dtype)


def add_rows(
    layer: keras.layers.Layer, name: str, shape: Shape, initializer: InitializerLike
) -> keras.Variable:
    """Adds a bfloat16 weight to a layer, with the rounded values of a float32 weight.

    If the initializer can be evaluated in parts, no float32 tensor has all rows. This is not
    possible in a function, and under a strategy.

    Args:
        layer: A layer with `add_class_weight`.
        name: Name of the weight.
        shape: Shape of the weight.
        initializer: Initializer of the weight.
    """
    in_float32: Initializer = keras.initializers.get(initializer)
    in_blocks = (
        tf.executing_eagerly() and not tf.distribute.has_strategy() and has_parts(in_float32)
    )
    first_values = "zeros" if in_blocks else RoundedInitializer(in_float32)
    weight = layer.add_class_weight(name, shape, first_values, dtype="bfloat16")
    if in_blocks:
        _initialize_in_blocks(weight, in_float32, name)
    return mark(weight)


def mark(weight: keras.Variable, is_shared: bool = False) -> keras.Variable:
    """Marks a bfloat16 variable as class rows that are rounded at random, and returns it.

    Args:
        weight: The variable.
        is_shared: Whether it is the table of another layer.
    """
    setattr(weight, _MARK, "shared" if is_shared else "own")
    return weight


def is_marked(variable: Any) -> bool:
    """Returns whether a variable has class rows that are rounded at random."""
    return hasattr(variable, _MARK)


def is_shared(variable: Any) -> bool:
    """Returns whether they are the table of another layer, which looks up rows in bfloat16."""
    return getattr(variable, _MARK, None) == "shared"


def set_rows(weight: keras.Variable, first: int, rows: tf.Tensor) -> None:
    """Sets rows `first`, `first + 1`, ... of a variable in place, to `rows`, `[n, ...]`.

    `weight.value[first:end].assign(rows)` would read the whole variable.
    """
    ids = tf.range(first, first + rows.shape[0], dtype=tf.int64)
    weight.value.scatter_update(tf.IndexedSlices(rows, ids))


def row_blocks(
    shape: Sequence[int], numbers: int = _BLOCK, multiple: int = 1
) -> Iterator[tuple[int, int]]:
    """Yields ranges `[first, end)` of the rows of a table, few enough for a copy in memory.

    Args:
        shape: Shape of the table.
        numbers: How many numbers a range has, at most.
        multiple: All ranges but the last have a multiple of so many rows, at least one.
    """
    rows = max(1, numbers // max(1, math.prod(shape[1:])) // multiple) * multiple
    for first in range(0, shape[0], rows):
        yield first, min(first + rows, shape[0])


@tf.custom_gradient
def widened(rows: tf.Tensor) -> tf.Tensor:
    """Returns bfloat16 rows in float32. Their gradient is float32, not rounded to bfloat16."""
    return tf.cast(rows, tf.float32), lambda d_rows: d_rows


def _initialize_in_blocks(weight: keras.Variable, initializer: Initializer, name: str) -> None:
    shape = tuple(weight.shape)
    for first, end in row_blocks(shape):
        part = PartInitializer(initializer, shape, first, f"{name}_initializer")
        values = part((end - first, *shape[1:]), "float32")
        set_rows(weight, first, tf.cast(values, tf.bfloat16))
