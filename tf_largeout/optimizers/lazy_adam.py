"""Adam that updates only the rows with a gradient."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.arguments import boolean, whole_number
from tf_largeout.keras_internals import index_of, slot_of
from tf_largeout.ops import dense_adam_ops, devices, row_ops
from tf_largeout.optimizers.row_sparse import RowSparse
from tf_largeout.types import Config, LearningRate, Variable


@keras.saving.register_keras_serializable(package="tf_largeout")
class LazyAdam(RowSparse, keras.optimizers.Adam):
    """Adam that updates only the rows with a gradient.

    For sparse gradients (`tf.IndexedSlices`: sampled losses over `LargeOutput`, and any
    `keras.layers.Embedding`, so the embedding tables of your own encoder profit too) a step
    costs O(rows in the batch) instead of O(all rows):

    ```
    v *= beta_2^(steps since the row's last gradient, less 1)
    g = sum of the gradients of the row
    v += (g^2 - v) (1 - beta_2)
    w -= learning_rate sqrt(1 - beta_2^(t + row_step_offset)) g / (sqrt(v) + epsilon)
    ```

    where t is the global step. Rows without a gradient keep w and v; Keras's Adam moves all of
    them at each step. Dense gradients give the same result as `keras.optimizers.Adam`, bit by
    bit (with `beta_1=0`, to rounding); on a CPU in one pass over memory.

    Rows have no momentum by default. Dense Adam spends the momentum of a gradient over the next
    steps, in which a rare row has no other; a row that is updated only when a gradient comes
    would get a tenth of that, and the rest of an old one. Without momentum one update moves
    the row as far as dense Adam's would over the next steps. And v decays as in dense Adam, so
    that it is small again when a rare row's next gradient comes.

    The square root is Adam's correction of v for its start at 0, and made for gradients that
    come in each step. A row's first gradient moves it by `learning_rate` in step 1 and by 31
    times as much after thousands of steps. From an offset of 300 on it is 16 times as much in
    step 1, so that rare rows learn from the first epoch on; without any correction, frequent
    ones would be thrown far by the gradients of an encoder that has learned nothing yet.

    Reference:
        [Kingma & Ba, 2014](https://arxiv.org/abs/1412.6980), the form before section 2.1.

    Args:
        learning_rate: float, schedule or callable. Defaults to 3e-3, thrice that of Keras's
            Adam: a row has few updates, those of its own labels and draws. 1e-2 with a schedule
            that falls to 0 is often better (docs/guides/optimizers.md).
        beta_1: decay of the first moment under dense gradients. Defaults to 0.9. With 0 no
            first moment is kept: half the memory, of use for the largest class matrices.
        beta_2: decay of the second moment. Defaults to 0.999.
        epsilon: added to the root of v. Defaults to 1e-7.
        weight_decay: None, or decoupled weight decay (Loshchilov & Hutter 2017): a row with
            a gradient first loses `learning_rate * weight_decay` of its weights.
        decay_skipped: whether the moments of a row are decayed for the steps that skipped
            it, `v *= beta_2^skipped` and `m *= row_beta_1^skipped`, when its next gradient
            comes: then they equal those of dense Adam. Costs 8 bytes per row. Defaults to True.
        row_beta_1: decay of the first moment under sparse gradients. Defaults to 0. Another
            number gives rows a moment of their own, `m += (g - m) (1 - row_beta_1)`, whose
            bias-corrected value takes the place of g.
        row_step_offset: how many steps are taken to have gone before the first when v is
            corrected for sparse gradients. Defaults to 300.
            `row_beta_1=0.9, decay_skipped=False, row_step_offset=0` is what other libraries
            call LazyAdam.
        name: name of the optimizer.
        **kwargs: `clipnorm`, `clipvalue`, `global_clipnorm`, `loss_scale_factor`, ... of
            `keras.optimizers.Optimizer`. Norms are those of the merged gradients.

    Raises:
        ValueError: for `amsgrad`, a `decay_skipped` that is no bool, a `row_beta_1` that is not
            in [0, 1) and a `row_step_offset` that is no integer of at least 0; and, when a
            sparse gradient comes, for `use_ema`, `gradient_accumulation_steps` and constraints
            of its variable, which need every row at each step, and for variables that are not
            float32.

    Example:
    ```python
    model.compile(optimizer=tflo.optimizers.LazyAdam(3e-3), loss=loss)
    ```
    """

    def __init__(
        self,
        learning_rate: LearningRate = 3e-3,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        weight_decay: float | None = None,
        decay_skipped: bool = True,
        row_beta_1: float = 0.0,
        row_step_offset: int = 300,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("amsgrad"):
            raise ValueError(
                "LazyAdam has no amsgrad variant. Received: amsgrad=True. Leave it out, or use "
                "keras.optimizers.Adam, which updates every row at each step."
            )
        super().__init__(
            learning_rate=learning_rate,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            weight_decay=weight_decay,
            name=name,
            **kwargs,
        )
        self.decay_skipped = boolean("decay_skipped", decay_skipped)
        if not 0 <= row_beta_1 < 1:
            raise ValueError(
                "`row_beta_1` must be at least 0 and below 1. "
                f"Received: row_beta_1={row_beta_1!r}."
            )
        self.row_beta_1 = float(row_beta_1)
        self.row_step_offset = whole_number("row_step_offset", row_step_offset, least=0)

    def add_variable_from_reference(
        self, reference_variable: Variable, name: str | None = None, initializer: str = "zeros"
    ) -> keras.Variable | None:
        """Makes a slot; None for m where neither gradient has a first moment."""
        if name == "momentum" and not (self.beta_1 or self.row_beta_1):
            return None
        return super().add_variable_from_reference(reference_variable, name, initializer)

    def add_slots(self, variables: Sequence[Variable]) -> None:
        """Makes with `decay_skipped` the last step of each row."""
        if self.decay_skipped:
            self._last_steps = [
                self.add_row_slot(variable, "last_step", dtype="int64")
                for variable in variables
            ]

    def update_rows(
        self,
        values: tf.Tensor,
        ids: tf.Tensor,
        variable: tf.Variable,
        learning_rate: tf.Tensor,
        weight_decay: tf.Tensor,
    ) -> None:
        step = self.step_number(variable)
        row_ops.row_adam(
            variable,
            slot_of(self, "momentums", variable) if self.row_beta_1 else None,
            slot_of(self, "velocities", variable),
            values,
            ids,
            self._step_size(learning_rate, step, self.row_beta_1, self.row_step_offset),
            beta_1=self.row_beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
            weight_decay=weight_decay,
            last_step=self._last_step_of(variable) if self.decay_skipped else None,
            step=step,
        )

    def update_all(
        self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        if self.decay_skipped:
            self._decay_skipped_rows(variable)
        if slot_of(self, "momentums", variable) is not None:
            if self._takes_one_pass(gradient, variable):
                self._update_in_one_pass(gradient, variable, learning_rate)
            else:
                super().update_all(gradient, variable, learning_rate)
            return
        velocity = slot_of(self, "velocities", variable)
        gradient = tf.cast(gradient, variable.dtype)
        learning_rate = tf.cast(learning_rate, tf.float32)
        step_size = self._step_size(learning_rate, self.step_number(variable), self.beta_1)
        self.assign_add(velocity, (tf.square(gradient) - velocity) * (1 - self.beta_2))
        root = tf.sqrt(velocity.value) + self.epsilon
        self.assign_sub(variable, gradient * tf.cast(step_size, variable.dtype) / root)

    def _takes_one_pass(self, gradient: tf.Tensor, variable: tf.Variable) -> bool:
        dtypes = {keras.backend.standardize_dtype(x.dtype) for x in (gradient, variable)}
        return dtypes == {"float32"} and not devices.is_on_gpu(variable)

    def _update_in_one_pass(
        self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        dense_adam_ops.dense_adam(
            variable,
            slot_of(self, "momentums", variable),
            slot_of(self, "velocities", variable),
            gradient,
            self._step_size(learning_rate, self.step_number(variable), self.beta_1),
            self.beta_1,
            self.beta_2,
            self.epsilon,
        )

    def _decay_skipped_rows(self, variable: tf.Variable) -> None:
        """Catches up with the sparse steps of `variable` that left rows out, if any did."""
        last_step = self._last_step_of(variable)
        step = self.step_number(variable)
        skipped = step - last_step.value - 1
        tf.cond(
            tf.reduce_any(skipped > 0),
            lambda: self._decay_moments(variable, tf.cast(skipped, variable.dtype)),
            lambda: None,
        )
        self.assign(last_step, tf.fill(last_step.shape, step))

    def _decay_moments(self, variable: tf.Variable, skipped: tf.Tensor) -> None:
        skipped = tf.reshape(skipped, variable.shape[:1] + [1] * (len(variable.shape) - 1))
        for name, beta in (("momentums", self.beta_1), ("velocities", self.beta_2)):
            slot = slot_of(self, name, variable)
            if slot is not None:
                self.assign(slot, slot.value * tf.pow(beta, skipped))

    def _last_step_of(self, variable: tf.Variable) -> keras.Variable:
        return self._last_steps[index_of(self, variable)]

    def _step_size(
        self, learning_rate: tf.Tensor, step: tf.Tensor, beta_1: float, step_offset: int = 0
    ) -> tf.Tensor:
        # In Keras's arithmetic of float32 variables, so that sparse and dense gradients agree.
        step = tf.cast(step, tf.float32)
        beta_1_power = tf.pow(tf.cast(beta_1, tf.float32), step)
        beta_2_power = tf.pow(tf.cast(self.beta_2, tf.float32), step + step_offset)
        return learning_rate * tf.sqrt(1 - beta_2_power) / (1 - beta_1_power)

    def get_config(self) -> Config:
        config = super().get_config()
        del config["amsgrad"]
        config |= {
            "decay_skipped": self.decay_skipped,
            "row_beta_1": self.row_beta_1,
            "row_step_offset": self.row_step_offset,
        }
        return config
