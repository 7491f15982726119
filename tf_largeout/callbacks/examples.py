"""Examples for callbacks: a sample of the arrays that a user passes."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf


def require_labels(callback: str, x: Any, y: Any) -> None:
    """Raises a ValueError if `y` is None and `x` is not an iterable of batches."""
    if y is not None:
        return
    if any(hasattr(one, "shape") for one in keras.tree.flatten(x)):
        raise ValueError(
            "`y` must contain the labels if `x` contains arrays. Received: y=None. Pass "
            f"{callback}(x, y), or a tf.data.Dataset of batches (x, y)."
        )
    is_iterable = isinstance(x, keras.utils.PyDataset) or hasattr(x, "__iter__")
    if not is_iterable or isinstance(x, str | list | tuple | dict):
        raise ValueError(
            "`x` must be arrays, or a tf.data.Dataset or keras.utils.PyDataset of batches "
            f"(x, y). Received: x={x!r} (of type {type(x).__name__}). Pass {callback}(x, y)."
        )


def sample_of(data: tuple[Any, Any, Any], count: int | None) -> tuple[Any, Any, Any]:
    """Returns `count` examples of `(x, y, sample_weight)`, drawn at random but in order."""
    for one in keras.tree.flatten(data):
        if isinstance(one, tf.SparseTensor | tf.RaggedTensor):
            raise ValueError(
                "`x`, `y` and `sample_weight` must be arrays. Received: a "
                f"{type(one).__name__}. Pass a tf.data.Dataset of batches as `x`."
            )
    arrays = keras.tree.map_structure(np.asarray, data, none_is_leaf=False)
    lengths = {len(one) for one in keras.tree.flatten(arrays) if one is not None and one.ndim}
    if len(lengths) != 1:
        raise ValueError(
            "`x`, `y` and `sample_weight` must be arrays with as many rows as there are "
            f"examples. Received arrays with these numbers of rows: {sorted(lengths)}."
        )
    number = lengths.pop()
    if count is not None and count < number:
        rows = np.sort(np.random.default_rng(0).permutation(number)[:count])
        arrays = keras.tree.map_structure(lambda one: one[rows], arrays, none_is_leaf=False)
    return keras.tree.map_structure(_without_strings, arrays, none_is_leaf=False)


def _without_strings(array: np.ndarray) -> np.ndarray | tf.Tensor:
    """Returns strings as a tensor, because `evaluate` does not accept NumPy strings."""
    return tf.constant(array) if array.dtype.kind in "SUO" else array
