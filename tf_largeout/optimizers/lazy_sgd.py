"""Gradient descent with momentum that updates only the rows with a gradient."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout.keras_internals import known_variable
from tf_largeout.ops import row_ops
from tf_largeout.optimizers.row_sparse import RowSparse, RowStep
from tf_largeout.types import LearningRate


@keras.saving.register_keras_serializable(package="tf_largeout")
class LazySGD(RowSparse, keras.optimizers.SGD):
    """Gradient descent with momentum that updates only the rows with a gradient.

    For a sparse gradient (see `LazyAdam`), a step takes O(rows with a gradient) time:

    ```
    g = sum of the gradients of the row
    m = momentum m - learning_rate g
    w += m,  or with nesterov  w += momentum m - learning_rate g
    ```

    Rows without a gradient keep w and m; Keras's SGD with momentum updates all rows in each
    step. For dense gradients the result is bit-identical to that of `keras.optimizers.SGD`.

    For class rows, use a learning rate of a fifth of the batch size. The loss is a mean over
    the batch, but only one or two of its examples contribute to the gradient of a class row.
    This rate is far too large for the other layers, so use another optimizer for them, as
    below. `MultiOptimizer` needs Keras 3.15. If you save it in a `tf.train.Checkpoint`, also
    pass its optimizers: `optimizers=list(optimizer.optimizers)`. Otherwise their state is not
    saved.

    ```python
    rows = tflo.optimizers.LazySGD(batch_size / 5)
    others = tflo.optimizers.LazyAdam(3e-3)
    optimizer = keras.optimizers.MultiOptimizer(
        keras.optimizers.OptimizerMap(others, {".*large_output.*": rows})
    )
    ```

    Reference:
        [Sutskever et al., 2013](https://proceedings.mlr.press/v28/sutskever13.html), eq. 1-4.

    Args:
        learning_rate: float, schedule or callable. Defaults to 0.01.
        momentum: float in [0, 1]. Defaults to 0: no slot, plain gradient descent.
        nesterov: whether to use Nesterov momentum. Defaults to False.

    The other arguments and the errors are those of `LazyAdam`.
    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            learning_rate=learning_rate,
            momentum=momentum,
            nesterov=nesterov,
            weight_decay=weight_decay,
            name=name,
            **kwargs,
        )

    def update_rows(self, variable: tf.Variable, step: RowStep) -> None:
        has_slot = self.momentum != 0
        row_ops.row_momentum(
            variable,
            self.momentums[known_variable(self, variable).position] if has_slot else None,
            step.values,
            step.ids,
            step.learning_rate,
            decay=self.momentum,
            nesterov=has_slot and self.nesterov,
            weight_decay=step.weight_decay,
            rounding=step.rounding,
        )
