"""Adagrad that updates only the rows with a gradient."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout.keras_internals import slot_of
from tf_largeout.ops import row_ops
from tf_largeout.optimizers.row_sparse import RowSparse
from tf_largeout.types import LearningRate


@keras.saving.register_keras_serializable(package="tf_largeout")
class LazyAdagrad(RowSparse, keras.optimizers.Adagrad):
    """Adagrad that updates only the rows with a gradient.

    For sparse gradients (`tf.IndexedSlices`: sampled losses over `LargeOutput`, and any
    `keras.layers.Embedding`, so the embedding tables of your own encoder profit too) a step
    costs O(rows in the batch) instead of O(all rows):

    ```
    g = sum of the gradients of the row
    a += g^2,  w -= learning_rate g / sqrt(a + epsilon)
    ```

    This is Adagrad exactly: rows with a zero gradient do not move in it. Keras's Adagrad
    squares the gradients of a repeated row before it sums them. Dense gradients give the
    same result as `keras.optimizers.Adagrad`, bit by bit.

    For class rows take `LazyAdagrad(30 * rate, initial_accumulator_value=0.0)`, where `rate` is
    what suits `LazyAdam`. Keras's start of 0.1 is far above the squared gradients of a mean
    over a batch, in which each row has a share of one example or two: with it rows hardly move.

    Reference:
        [Duchi et al., 2011](http://www.jmlr.org/papers/volume12/duchi11a/duchi11a.pdf).

    Args:
        learning_rate: float, schedule or callable. Defaults to 1e-3 as in Keras; 0.01 to 1
            are usual.
        initial_accumulator_value: start of a. Defaults to 0.1 as in Keras; 0 for class rows.
        epsilon: added to a under the root. Defaults to 1e-7.
        weight_decay: None, or decoupled weight decay: a row with a gradient first loses
            `learning_rate * weight_decay` of its weights.
        name: name of the optimizer.
        **kwargs: `clipnorm`, `clipvalue`, `global_clipnorm`, `loss_scale_factor`, ... of
            `keras.optimizers.Optimizer`. Norms are those of the merged gradients.

    Raises:
        ValueError: see `LazyAdam`.
    """

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

    def update_rows(
        self,
        values: tf.Tensor,
        ids: tf.Tensor,
        variable: tf.Variable,
        learning_rate: tf.Tensor,
        weight_decay: tf.Tensor,
    ) -> None:
        row_ops.row_adagrad(
            variable,
            slot_of(self, "accumulators", variable),
            values,
            ids,
            learning_rate,
            epsilon=self.epsilon,
            weight_decay=weight_decay,
        )
