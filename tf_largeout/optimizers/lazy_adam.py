"""Adam that updates only the rows with a gradient."""

import keras
import tensorflow as tf

from tf_largeout.ops import row_ops
from tf_largeout.optimizers.row_sparse import RowSparse


@keras.saving.register_keras_serializable(package="tf_largeout")
class LazyAdam(RowSparse, keras.optimizers.Adam):
    """Adam that updates only the rows with a gradient.

    For sparse gradients (`tf.IndexedSlices`: sampled losses over `LargeOutput`, and any
    `keras.layers.Embedding`, so the embedding tables of your own encoder profit too) a step
    costs O(rows in the batch) instead of O(all rows):

    ```
    g = sum of the gradients of the row
    m += (g - m) (1 - beta_1),  v += (g^2 - v) (1 - beta_2)
    w -= learning_rate sqrt(1 - beta_2^t) / (1 - beta_1^t) m / (sqrt(v) + epsilon)
    ```

    where t is the global step. Rows without a gradient keep w, m and v; Keras's Adam moves
    all of them at each step. Dense gradients give the same result as
    `keras.optimizers.Adam`, bit by bit (without momentum, to rounding).

    For the rows of many classes take `beta_1=0.0, decay_skipped=True`. Dense Adam spends the
    momentum of a gradient over the next steps, in which a rare row has no other. A row that is
    updated only when a gradient comes gets a tenth of that and the rest of an old one, divided
    by a v that did not decay in between: it moves several times less. Without momentum and
    with v decayed it moves at once as far as it would have by and by. On `place_names` that
    learned twice as fast at first and ended higher.

    Reference:
        [Kingma & Ba, 2014](https://arxiv.org/abs/1412.6980), the form before section 2.1.

    Args:
        learning_rate: float, schedule or callable. Defaults to 1e-3.
        beta_1: decay of the first moment. Defaults to 0.9. With 0 no m is kept: the optimizer
            takes half the memory, and a step a third less traffic.
        beta_2: decay of the second moment. Defaults to 0.999.
        epsilon: added to the root of v. Defaults to 1e-7.
        weight_decay: None, or decoupled weight decay (Loshchilov & Hutter 2017): a row with
            a gradient first loses `learning_rate * weight_decay` of its weights.
        decay_skipped: whether the moments of a row are decayed for the steps that skipped
            it, `m *= beta_1^skipped` and `v *= beta_2^skipped`, when its next gradient
            comes: then they equal those of dense Adam. Costs 8 bytes a row. Helps where
            rows are rare and stale moments do harm. Defaults to False.
        name: name of the optimizer.
        **kwargs: `clipnorm`, `clipvalue`, `global_clipnorm`, `loss_scale_factor`, ... of
            `keras.optimizers.Optimizer`. Norms are those of the merged gradients.

    Raises:
        ValueError: for `amsgrad`; and, when a sparse gradient comes, for `use_ema`,
            `gradient_accumulation_steps` and constraints of its variable, which need every
            row at each step, and for variables that are not float32.

    Example:
    ```python
    model.compile(optimizer=tflo.optimizers.LazyAdam(1e-3), loss=loss)
    ```
    """

    def __init__(
        self,
        learning_rate=1e-3,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-7,
        weight_decay=None,
        decay_skipped=False,
        name=None,
        **kwargs,
    ):
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
        self.decay_skipped = decay_skipped

    def add_variable_from_reference(self, reference_variable, name=None, initializer="zeros"):
        """Makes a slot; None for m if `beta_1=0`."""
        if name == "momentum" and not self.beta_1:
            return None
        return super().add_variable_from_reference(reference_variable, name, initializer)

    def build(self, var_list):
        """Makes the moments m and v, and with `decay_skipped` the last step of each row."""
        if self.built:
            return
        super().build(var_list)
        if self.decay_skipped:
            self._last_steps = [
                self.add_row_slot(variable, "last_step", dtype="int64") for variable in var_list
            ]

    def update_rows(self, values, ids, variable, learning_rate, weight_decay):
        index = self._get_variable_index(variable)
        step = self.iterations + 1
        row_ops.row_adam(
            variable,
            self._momentums[index],
            self._velocities[index],
            values,
            ids,
            self._step_size(learning_rate, step),
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
            weight_decay=weight_decay,
            last_step=self._last_steps[index] if self.decay_skipped else None,
            step=step,
        )

    def update_all(self, gradient, variable, learning_rate):
        if self.decay_skipped:
            self._decay_skipped_rows(variable)
        index = self._get_variable_index(variable)
        if self._momentums[index] is not None:
            super().update_all(gradient, variable, learning_rate)
            return
        velocity = self._velocities[index]
        gradient = tf.cast(gradient, variable.dtype)
        step_size = self._step_size(tf.cast(learning_rate, tf.float32), self.iterations + 1)
        self.assign_add(velocity, (tf.square(gradient) - velocity) * (1 - self.beta_2))
        root = tf.sqrt(velocity.value) + self.epsilon
        self.assign_sub(variable, gradient * tf.cast(step_size, variable.dtype) / root)

    def _decay_skipped_rows(self, variable):
        # Nothing happens here unless sparse gradients of the variable skipped rows before.
        index = self._get_variable_index(variable)
        last_step = self._last_steps[index]
        step = self.iterations + 1
        skipped = tf.cast(step - last_step.value - 1, variable.dtype)
        skipped = tf.reshape(skipped, variable.shape[:1] + [1] * (len(variable.shape) - 1))
        for slots, beta in ((self._momentums, self.beta_1), (self._velocities, self.beta_2)):
            if slots[index] is not None:
                self.assign(slots[index], slots[index].value * tf.pow(beta, skipped))
        self.assign(last_step, tf.fill(last_step.shape, step))

    def _step_size(self, learning_rate, step):
        # In Keras's arithmetic of float32 variables, so that sparse and dense gradients agree.
        step = tf.cast(step, tf.float32)
        beta_1_power = tf.pow(tf.cast(self.beta_1, tf.float32), step)
        beta_2_power = tf.pow(tf.cast(self.beta_2, tf.float32), step)
        return learning_rate * tf.sqrt(1 - beta_2_power) / (1 - beta_1_power)

    def get_config(self):
        config = super().get_config()
        del config["amsgrad"]
        config["decay_skipped"] = self.decay_skipped
        return config
