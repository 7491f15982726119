"""Makes Keras's dynamic loss scaling check sparse gradients by their rows."""

import functools
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from tf_largeout.keras_internals import wrap_check_finite
from tf_largeout.optimizers.row_sparse import RowSparse
from tf_largeout.types import Gradient
from tf_largeout.variables import replicas


def keep_finite_check_sparse() -> None:
    """Makes `keras.optimizers.LossScaleOptimizer` check only the values of sparse gradients.

    Its `check_finite` converts `IndexedSlices` to a boolean tensor of the variable's shape.
    Under the policy mixed_float16, `Model.compile` wraps any optimizer in a
    `LossScaleOptimizer`, and the wrapped optimizer cannot change the check. So this function
    replaces the method. If the wrapped optimizer is not one of ours, the new method calls the
    old one with the same gradients.

    With several replicas, the result is true if the gradients of all replicas are finite.
    (Keras checks only the first replica.)
    """
    wrap_check_finite(_on_rows)


def _on_rows(check_finite: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    @functools.wraps(check_finite)
    def check_finite_on_rows(
        self: keras.optimizers.LossScaleOptimizer, grads: Sequence[Gradient | None]
    ) -> tf.Tensor:
        if _is_row_sparse(self.inner_optimizer):
            grads = [g.values if isinstance(g, tf.IndexedSlices) else g for g in grads]
            failed = tf.cast(~check_finite(self, grads), tf.float32)
            return tf.equal(replicas.summed(failed), 0)  # on any replica
        return check_finite(self, grads)

    return check_finite_on_rows


def _is_row_sparse(optimizer: keras.optimizers.Optimizer) -> bool:
    inner = getattr(optimizer, "optimizers", [])  # of a MultiOptimizer
    return isinstance(optimizer, RowSparse) or any(isinstance(o, RowSparse) for o in inner)
