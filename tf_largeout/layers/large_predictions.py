"""What tells somebody who lets `predict` compute very many logits of a way without."""

import logging
from typing import Any

import keras
import tensorflow as tf

from tf_largeout import keras_internals
from tf_largeout.tags.output_tag import are_logits_left_out

LIMIT = 4 * 2**30  # bytes


class LargePredictions:
    """Counts the logits that Keras's `predict` computes; logs a warning once, above `LIMIT`.

    No layer sees where a `predict` begins and ends, so all of them count together. The count is
    taken on the host while they run, and is in the graph of `predict` alone: in no export. On
    several replicas, whose calls have threads of their own, there is none.

    Args:
        layer: The output layer.
    """

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self._num_bytes, self._told = 0, False

    def count(self, features: tf.Tensor) -> None:
        """Counts the logits of `features`, `[..., dim]`, if `predict` calls the layer."""
        if are_logits_left_out() or not keras_internals.is_running(keras.Model.predict):
            return
        num_rows = tf.size(features, tf.int64) // tf.shape(features, tf.int64)[-1]
        row = self._layer.num_classes * features.dtype.size
        if tf.inside_function():
            tf.numpy_function(self._add, [num_rows * row], [], stateful=True)
        else:
            self._add(int(num_rows) * row)

    def _add(self, num_bytes: int) -> None:
        self._num_bytes += int(num_bytes)
        if self._told or self._num_bytes <= LIMIT:
            return
        self._told = True
        logging.getLogger("tf_largeout").warning(
            "`predict` has computed %.1f GiB of logits of layer '%s' by now, %d a row. Where "
            "the best classes are wanted, tf_largeout.retrieval.predict_top_k(model, x, k) "
            "gives them without.",
            self._num_bytes / 2**30,
            self._layer.name,
            self._layer.num_classes,
        )
