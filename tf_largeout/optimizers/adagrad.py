"""Adagrad that updates only the rows with a gradient."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout.keras_internals import slot_of
from tf_largeout.ops import row_ops
from tf_largeout.optimizer_settings import RowwiseAdagradSettings
from tf_largeout.optimizers.row_sparse import RowSparse, RowStep
from tf_largeout.types import LearningRate, Variable


@keras.saving.register_keras_serializable(package="tf_largeout")
class LazyAdagrad(RowSparse, keras.optimizers.Adagrad):
    """Adagrad that updates only the rows with a gradient.

    For a sparse gradient (see `LazyAdam`), a step takes O(rows with a gradient) time:

    ```
    g = sum of the gradients of the row
    a += g^2,  w -= learning_rate g / sqrt(a + epsilon)
    ```

    The result is exactly that of Adagrad, which does not move rows with a zero gradient.
    (Keras's Adagrad squares the gradients of a repeated row before it sums them.) For dense
    gradients the result is bit-identical to that of `keras.optimizers.Adagrad`.

    For class rows use `LazyAdagrad(30 * rate, initial_accumulator_value=0.0)`, where `rate` is
    a good rate for `LazyAdam`. The loss is a mean over the batch, but only one or two examples
    of the batch contribute to the gradient of a class row. So the square of the gradient is far
    below Keras's initial value of 0.1. With this initial value, rows hardly move.

    Reference:
        [Duchi et al., 2011](http://www.jmlr.org/papers/volume12/duchi11a/duchi11a.pdf).

    Args:
        learning_rate: float, schedule or callable. Defaults to 1e-3 as in Keras; usual values
            are 0.01 to 1.
        initial_accumulator_value: initial value of a. Defaults to 0.1 as in Keras; use 0 for
            class rows.
        epsilon: added to a under the root. Defaults to 1e-7.

    The other arguments and the errors are those of `LazyAdam`.
    """

    # The op that updates the rows of a variable and its accumulator.
    _update_op = staticmethod(row_ops.row_adagrad)

    def __init__(
        self,
        learning_rate: LearningRate = 1e-3,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        weight_decay: float | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            learning_rate=learning_rate,
            initial_accumulator_value=initial_accumulator_value,
            epsilon=epsilon,
            weight_decay=weight_decay,
            name=name,
            **kwargs,
        )

    def update_rows(self, variable: tf.Variable, step: RowStep) -> None:
        accumulator = slot_of(self, "accumulators", variable)
        values, ids, rate, decay, rounding, _ = step
        self._update_op(variable, accumulator, values, ids, rate, self.epsilon, decay, rounding)


@keras.saving.register_keras_serializable(package="tf_largeout")
class RowwiseAdagrad(RowwiseAdagradSettings, LazyAdagrad):
    """Adagrad with one accumulator per row, to save memory.

    For a variable of rank 2 or more, the optimizer stores one float32 per row instead of one
    per weight. For a matrix of 10,000,000 rows of width 64, this takes 40 MB. `LazyAdam` needs
    5.1 GB:

    ```
    g = sum of the gradients of the row
    a += mean(g^2),  w -= learning_rate g / sqrt(a + epsilon)
    ```

    Only rows with a gradient are read and written (see `LazyAdam` on sparse gradients). A dense
    gradient gives the same result as an equal sparse one. Variables of rank 0 and 1 are updated
    by Adagrad. For class rows use 30 times the learning rate that you would use with
    `LazyAdam`. The accumulator starts at 0, as in PyTorch's Adagrad; see `LazyAdagrad`.

    Reference:
        [Mudigere et al., 2021](https://arxiv.org/abs/2104.05158), "row-wise AdaGrad".

    Args:
        learning_rate: float, schedule or callable. Defaults to 0.1, about 30 times that of
            `LazyAdam`; usual values are 0.01 to 1.
        initial_accumulator_value: initial value of a. Defaults to 0.

    The other arguments and the errors are those of `LazyAdagrad`.
    """

    _update_op = staticmethod(row_ops.row_rowwise_adagrad)

    def add_variable_from_reference(
        self, reference_variable: Variable, name: str | None = None, initializer: str = "zeros"
    ) -> keras.Variable | None:
        """Creates a slot; the accumulator of a matrix has one value per row."""
        if name == "accumulator" and len(reference_variable.shape) > 1:
            return self.add_row_slot(reference_variable, name, initializer=initializer)
        return super().add_variable_from_reference(reference_variable, name, initializer)

    def update_all(
        self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        rank = len(variable.shape)
        if rank < 2:
            super().update_all(gradient, variable, learning_rate)
            return
        accumulator = slot_of(self, "accumulators", variable)
        gradient = tf.cast(gradient, tf.float32)
        self.assign_add(accumulator, tf.reduce_mean(gradient**2, axis=list(range(1, rank))))
        scale = tf.cast(learning_rate, tf.float32) / tf.sqrt(accumulator.value + self.epsilon)
        self.assign_sub(variable, gradient * tf.reshape(scale, [-1] + [1] * (rank - 1)))
