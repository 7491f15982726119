"""Example weights by class, as `class_weight` of Keras's `fit`."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import real_number, whole_number

_INSTEAD = "Leave `class_weight` out, and return `(x, y, sample_weight)` from `dataset_fn`."


def weighted(
    dataset_fn: Callable[[tf.Tensor], tf.data.Dataset], class_weight: Mapping[int, float] | None
) -> Callable[[tf.Tensor], tf.data.Dataset]:
    """Returns a function that adds a weight per example to the datasets of `dataset_fn`.

    The weight of a label is found by binary search in O(log k), where k is the number of
    entries of `class_weight`. It does not depend on the number of classes.

    Args:
        dataset_fn: Returns a dataset of batches `(x, y)`; `y` is `[batch]` or `[batch, 1]`.
        class_weight: Weights by class; other classes have weight 1. With None the datasets are
            not changed.

    Raises:
        ValueError: If `class_weight` is not such a dictionary; and when a dataset is created,
            if its batches are not of that form.
    """
    if class_weight is None:
        return dataset_fn
    entries = _checked(class_weight)
    if not len(entries[0]):
        return dataset_fn

    def with_weights(*batch: Any) -> tuple[Any, tf.Tensor, tf.Tensor]:
        x, y = _x_and_y(batch)
        classes, weights = map(tf.constant, entries)  # in the graph of each trainer
        ids = tf.cast(tf.round(tf.reshape(y, [-1])), tf.int64)
        positions = tf.minimum(tf.searchsorted(classes, ids), tf.size(classes) - 1)
        has_weight = tf.gather(classes, positions) == ids
        return x, y, tf.where(has_weight, tf.gather(weights, positions), 1)

    return lambda seed: dataset_fn(seed).map(with_weights)


def _checked(class_weight: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns the classes, ascending, and their weights."""
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            "`class_weight` must be a dictionary of weights by class, such as {0: 0.5}. "
            f"Received: class_weight={class_weight!r}."
        )
    pairs = sorted(
        (
            whole_number("key of class_weight", one, least=0),
            real_number(f"class_weight[{one}]", weight, least=-math.inf),
        )
        for one, weight in class_weight.items()
    )
    classes = np.array([one for one, _ in pairs], np.int64)
    return classes, np.array([weight for _, weight in pairs], keras.config.floatx())


def _x_and_y(batch: Any) -> tuple[Any, tf.Tensor]:
    """Unpacks a batch; raises a ValueError unless it has one label per example."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
    if sample_weight is not None:
        raise ValueError(
            "`class_weight` cannot be combined with sample weights. Received: a `dataset_fn` "
            f"whose batches have sample weights, and `class_weight`. {_INSTEAD}"
        )
    if not tf.is_tensor(y) or isinstance(y, tf.RaggedTensor | tf.SparseTensor):
        raise ValueError(f"`class_weight` needs a tensor of labels. Received: {y}. {_INSTEAD}")
    if not (y.shape.rank == 1 or (y.shape.rank == 2 and y.shape[1] == 1)):
        raise ValueError(
            "`class_weight` needs one label for each example: labels of the shape [batch] or "
            f"[batch, 1]. Received: labels of the shape {y.shape}. {_INSTEAD}"
        )
    return x, y
