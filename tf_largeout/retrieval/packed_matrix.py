"""`PackedMatrix`: class rows with an 8-bit copy, for faster exact scans."""

import functools

import keras
import tensorflow as tf

from tf_largeout.classes.class_matrix import ClassMatrix
from tf_largeout.ops import class_scan_ops

# For narrower rows, 8-bit numbers hardly save time.
_LEAST_WIDTH = 32


class PackedMatrix(ClassMatrix):
    """A `ClassMatrix` with a faster `top_k`, for rows that no longer change.

    Its results are bit-identical to those of `ClassMatrix`. The first `top_k` makes a copy of
    the rows with 8 bits per number, which takes as long as a few searches. A search computes
    upper bounds of the scores from this copy. The bounds include all rounding errors. Only
    classes whose bounds are high enough are then scored in float32.

    Args:
        embeddings: Keras variable, float32 `[num_classes, dim]`, see `is_worth_it`.
        bias: Keras variable, float32 `[num_classes]`, or None.
        owner: Name of the layer, for messages.
    """

    @staticmethod
    def is_worth_it(embeddings: keras.Variable) -> bool:
        """Returns whether it is faster for these embeddings: wide rows, not on a GPU."""
        on_gpu = "GPU" in (embeddings.value.device or "")
        return embeddings.shape[1] >= _LEAST_WIDTH and not on_gpu

    def top_k(self, features: tf.Tensor, k: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return class_scan_ops.class_top_k(features, *self.variables(), k, self._packed)

    @functools.cached_property
    def _packed(self) -> class_scan_ops.PackedClasses:
        with tf.init_scope():  # packs at once, also while a graph is traced
            return class_scan_ops.pack_classes(*self.variables())
