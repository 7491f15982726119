"""`PackedMatrix`: rows at 8 bits a number too, for exact scans that read less."""

import functools

import keras
import tensorflow as tf

from tf_largeout.classes.class_matrix import ClassMatrix
from tf_largeout.ops import class_scan_ops

# Narrower rows have too few products for 8 bits to save much.
_LEAST_WIDTH = 32


class PackedMatrix(ClassMatrix):
    """A `ClassMatrix` of rows that do not change any more, whose `top_k` takes less time.

    Its results are those of `ClassMatrix` to the bit: 8 bits a number tell, by bounds that no
    rounding breaks, which classes can be among the best, and those are scored in float32. The
    first `top_k` packs the rows, in the time of a few searches.

    Args:
        embeddings: Keras variable, float32 `[num_classes, dim]`, as `is_worth_it` says.
        bias: Keras variable, float32 `[num_classes]`, or None.
        owner: Name of the layer, for messages.
    """

    @staticmethod
    def is_worth_it(embeddings: keras.Variable) -> bool:
        """Whether such embeddings gain by it: on a GPU, which scans in float32, none do."""
        on_gpu = "GPU" in (embeddings.value.device or "")
        return embeddings.shape[1] >= _LEAST_WIDTH and not on_gpu

    def top_k(
        self, features: tf.Tensor, k: int, absolute: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """As `ClassMatrix.top_k`."""
        if absolute:
            return super().top_k(features, k, absolute)
        return class_scan_ops.class_top_k(features, *self.variables(), k, self._packed)

    @functools.cached_property
    def _packed(self) -> class_scan_ops.PackedClasses:
        with tf.init_scope():  # graphs that are being traced take it as it is
            return class_scan_ops.pack_classes(*self.variables())
