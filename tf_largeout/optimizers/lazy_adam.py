"""Adam that updates only the rows with a gradient."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from tf_largeout.keras_internals import SlotOnDemand, known_variable, running_step, slot_of
from tf_largeout.ops import dense_adam_ops, devices, row_ops
from tf_largeout.optimizer_settings import AdamSettings
from tf_largeout.optimizers.row_sparse import RowSparse, RowStep
from tf_largeout.types import Variable
from tf_largeout.variables import class_rows


@keras.saving.register_keras_serializable(package="tf_largeout")
class LazyAdam(AdamSettings, RowSparse, keras.optimizers.Adam):
    """Adam that updates only the rows with a gradient.

    A gradient is sparse (`tf.IndexedSlices`) with sampled losses on a `LargeOutput`, and with
    any `keras.layers.Embedding`, such as the embedding tables of your encoder. A step then
    takes O(rows with a gradient) time instead of O(all rows):

    ```
    v *= beta_2^(steps since the row's last gradient - 1)
    g = sum of the gradients of the row
    v += (g^2 - v) (1 - beta_2)
    w -= learning_rate sqrt(1 - beta_2^(t + row_step_offset)) g / (sqrt(v) + epsilon)
    ```

    where t is the global step. Rows without a gradient keep w and v; Keras's Adam updates all
    rows in each step. For dense gradients the result is bit-identical to that of
    `keras.optimizers.Adam` (with `beta_1=0`, up to rounding). On a CPU, this update takes one
    pass over memory.

    By default, rows have no momentum. A lazy optimizer updates a row only when it has a
    gradient. With momentum, nine tenths of the update of a rare row would come from old
    gradients. Without momentum, one update moves the row as far as dense Adam would move it
    over several steps. v decays in every step, so it is small at the next gradient of a rare
    row.

    The factor `sqrt(1 - beta_2^...)` is Adam's bias correction: v starts at 0. Adam's
    correction assumes that the row has a gradient in each step. Without an offset, the first
    gradient of a row would move the row by `learning_rate` if it comes in step 1, and by 31
    times as much if it comes after thousands of steps. With an offset of 300, it moves the row
    by 16 times `learning_rate` in step 1, so that rare rows learn from the first epoch on.
    Without any correction, the gradients of an untrained encoder would move frequent rows too
    far.

    Reference:
        [Kingma & Ba, 2014](https://arxiv.org/abs/1412.6980), the form before section 2.1.

    Args:
        learning_rate: float, schedule or callable. Defaults to 3e-3, three times that of
            Keras's Adam, because a row is updated only when its class is a label or is drawn.
            1e-2 with a schedule that ends at 0 is often better (docs/guides/optimizers.md).
        beta_1: decay of the first moment for dense gradients. Defaults to 0.9. With 0, there is
            no first moment. That of class rows and of the table of an `EmbeddingBag` is created
            at their first dense gradient, such as that of an exact loss. Until then, its shape
            in `variables` is `[0, ...]`.
        beta_2: decay of the second moment. Defaults to 0.999.
        epsilon: added to the root of v. Defaults to 1e-7.
        weight_decay: None, or decoupled weight decay (Loshchilov & Hutter 2017): a row with a
            gradient is first multiplied by `1 - learning_rate * weight_decay`.
        decay_skipped: whether the moments of a row also decay for the steps in which it had no
            gradient, `v *= beta_2^skipped` and `m *= row_beta_1^skipped`, as in dense Adam.
            This is done at the next gradient of the row, and takes 8 bytes per row. Defaults to
            True.
        row_beta_1: decay of the first moment for sparse gradients. Defaults to 0. With another
            value, rows have a first moment `m += (g - m) (1 - row_beta_1)`. Its bias-corrected
            value replaces g in the update of w.
        row_step_offset: number of steps added to t when v is corrected for sparse gradients.
            Defaults to 300. Other libraries' LazyAdam is
            `row_beta_1=0.9, decay_skipped=False, row_step_offset=0`.
        name: name of the optimizer.
        **kwargs: Arguments of `keras.optimizers.Optimizer`: `clipnorm`, `clipvalue`,
            `global_clipnorm`, `loss_scale_factor` and others. Norms are computed after the
            gradients of repeated rows are summed.

    Raises:
        ValueError: for `amsgrad`, an argument out of range, and a `decay_skipped` that is not
            a bool. At a sparse gradient: for `use_ema`, `gradient_accumulation_steps` and a
            constraint of the variable, because these need every row in each step; and if the
            variable is neither float32 nor the rows of a `LargeOutput` with `embeddings_dtype`.

    Example:
    ```python
    model.compile(optimizer=tflo.optimizers.LazyAdam(3e-3), loss=loss)
    ```
    """

    def add_variable_from_reference(
        self, reference_variable: Variable, name: str | None = None, initializer: str = "zeros"
    ) -> keras.Variable | None:
        """Creates a slot; None for the first moment if it is not used.

        The first moment of a variable with sparse gradients has rows only if they are used.
        """
        if name == "momentum" and not (self.beta_1 or self.row_beta_1):
            return None
        if name != "momentum" or not hasattr(reference_variable, class_rows.SPARSE):
            return super().add_variable_from_reference(reference_variable, name, initializer)
        shape = reference_variable.shape
        slot = self.add_row_slot(reference_variable, name, shape=shape, on_demand=True)
        if self.row_beta_1:
            slot.create_rows()
        return slot

    def add_slots(self, variables: Sequence[Variable]) -> None:
        """Creates the slot with the last step of each row, if `decay_skipped` is set."""
        if self.decay_skipped:
            self._last_steps = []
            for variable in variables:
                self._last_steps.append(self.add_row_slot(variable, "last_step", "int64"))

    def update_rows(self, variable: tf.Variable, step: RowStep) -> None:
        number, beta_1, offset = self.step_number(variable), self.beta_1, 0
        if not step.is_dense:
            beta_1, offset = self.row_beta_1, self.row_step_offset
        momentum = slot_of(self, "momentums", variable) if beta_1 else None
        if step.is_dense and isinstance(momentum, SlotOnDemand):
            self._create_rows(momentum, variable)
        row_ops.row_adam(
            variable,
            momentum,
            slot_of(self, "velocities", variable),
            step.values,
            step.ids,
            self._step_size(step.learning_rate, number, beta_1, offset),
            beta_1=beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
            weight_decay=step.weight_decay,
            last_step=slot_of(self, "last_steps", variable) if self.decay_skipped else None,
            step=number,
            rounding=step.rounding,
        )

    def update_all(
        self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        step = self.step_number(variable)
        momentum = slot_of(self, "momentums", variable)
        velocity = slot_of(self, "velocities", variable)
        if isinstance(momentum, SlotOnDemand):
            self._create_rows(momentum, variable)
        if self.decay_skipped:
            self._decay_skipped_rows(variable, step)
        if momentum is None:
            gradient = tf.cast(gradient, variable.dtype)
            step_size = self._step_size(tf.cast(learning_rate, tf.float32), step, self.beta_1)
            self.assign_add(velocity, (tf.square(gradient) - velocity) * (1 - self.beta_2))
            root = tf.sqrt(velocity.value) + self.epsilon
            self.assign_sub(variable, gradient * tf.cast(step_size, variable.dtype) / root)
        elif gradient.dtype == variable.dtype == tf.float32 and not devices.is_on_gpu(variable):
            step_size = self._step_size(learning_rate, step, self.beta_1)
            options = self.beta_1, self.beta_2, self.epsilon
            dense_adam_ops.dense_adam(
                variable, momentum, velocity, gradient, step_size, *options
            )
        else:
            super().update_all(gradient, variable, learning_rate)

    def _create_rows(self, momentum: SlotOnDemand, variable: tf.Variable) -> None:
        """Creates the first moment of a variable, and of all shards of its table."""
        table = class_rows.table_of(known_variable(self, variable).of_model)
        if table is None:
            momentum.create_rows()
            return
        for shard in table.shards:
            slot_of(self, "momentums", shard).create_rows()

    def _decay_skipped_rows(self, variable: tf.Variable, step: tf.Tensor) -> None:
        """Decays the moments of rows for the steps in which they had no gradient."""
        last_step = slot_of(self, "last_steps", variable)
        skipped = step - last_step.value - 1

        def decay_moments() -> tf.Operation | None:
            count = tf.cast(skipped, variable.dtype)
            count = tf.reshape(count, variable.shape[:1] + [1] * (len(variable.shape) - 1))
            for name, beta in (("momentums", self.beta_1), ("velocities", self.beta_2)):
                if (slot := slot_of(self, name, variable)) is not None:
                    decay = tf.pow(tf.cast(beta, count.dtype), count)
                    self.assign(slot, slot.value * decay)
            return tf.no_op()

        is_compiled = tf.inside_function() and running_step().is_compiled
        # A condition would make a step wait for the GPU, and XLA would copy the variables.
        if is_compiled or devices.is_on_gpu(variable):
            decay_moments()
        else:
            tf.cond(tf.reduce_any(skipped > 0), decay_moments, tf.no_op)
        self.assign(last_step, tf.fill(last_step.shape, step))

    def _step_size(
        self, learning_rate: tf.Tensor, step: tf.Tensor, beta_1: float, step_offset: int = 0
    ) -> tf.Tensor:
        # Keras's float32 arithmetic, so that sparse and dense gradients agree.
        step = tf.cast(step, tf.float32)
        beta_1_power = tf.pow(tf.cast(beta_1, tf.float32), step)
        beta_2_power = tf.pow(tf.cast(self.beta_2, tf.float32), step + step_offset)
        return learning_rate * tf.sqrt(1 - beta_2_power) / (1 - beta_1_power)
