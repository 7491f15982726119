"""Keras optimizers that update only the rows of a variable that have a gradient, on JAX.

Rules, arguments, configs and saved states are those of the optimizers of the same names for
TensorFlow. The docstrings in tf_largeout/optimizers explain the rules and the defaults.
"""

import functools
import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import keras

from tf_largeout.arguments import boolean, check_optimizer_settings, real_number, whole_number
from tf_largeout.jax import rows
from tf_largeout.wrong_arguments import OF_OPTIMIZERS, refuse_wrong_arguments

_DISTINCT: dict[str, bool] = {"indices_are_sorted": True, "unique_indices": True}
_MOST_FINITE = float(jnp.finfo(jnp.bfloat16).max)


class _Rows(NamedTuple):
    """The rows of a gradient: distinct ids `[n]`, ascending, and the sums `[n, ...]` of each.

    The last ids may be the number of rows of the variable, which updates drop, with sums of 0.
    """

    ids: jax.Array
    values: jax.Array

    def __truediv__(self, scale: float) -> "_Rows":  # Keras unscales gradients with it
        return self._replace(values=self.values / scale)


class _Part:
    """The rows that a step reads and writes of a variable and its slots: `ids`, or all."""

    def __init__(self, ids: jax.Array | None) -> None:
        self.ids = ids

    def read(self, variable: keras.Variable) -> jax.Array:
        if self.ids is not None:
            return variable.value.at[self.ids].get(mode="fill", fill_value=0, **_DISTINCT)
        if isinstance(variable, SlotOnDemand):
            variable.create_rows()
        return variable.value

    def write(self, variable: keras.Variable, values: jax.Array) -> None:
        values = values.astype(variable.dtype)
        if self.ids is not None:  # XLA does this in place
            values = variable.value.at[self.ids].set(values, mode="drop", **_DISTINCT)
        variable.assign(values)


class SlotOnDemand(keras.Variable):
    """A slot of zeros `[num_rows, ...]`, of shape `[0, ...]` until a step or a file needs rows.

    Rows appear while a step is traced. The step gets a value without rows and returns one with
    rows, so JAX traces the next step again.
    """

    num_rows: int

    def create_rows(self) -> None:
        self._shape = (self.num_rows, *self._shape[1:])

    @property
    def value(self) -> jax.Array:
        value = super().value
        return value if value.shape == self.shape else jnp.zeros(self.shape, value.dtype)

    def assign(self, value: Any) -> jax.Array:
        """Sets all rows. A value without rows means zeros."""
        value = self._convert_to_tensor(value, self._dtype)
        if value.shape == (self.num_rows, *self.shape[1:]):
            self.create_rows()
        elif value.shape == (0, *self.shape[1:]):
            value = jnp.zeros(self.shape, self._dtype)
        return super().assign(value)


class RowSparse(keras.optimizers.Optimizer):
    """Makes a Keras optimizer row-sparse for gradients with rows (`rows.row_gradient`).

    A subclass inherits from this class first, then from the Keras optimizer, and implements
    `change`. With dense gradients, its results are those of the Keras optimizer. Gradients of
    repeated ids are summed before they are clipped. Weight decay is decoupled and applied to
    the updated rows only. A step with a gradient that is not finite changes nothing.

    Class rows in bfloat16 are updated in float32 and rounded at random, and their slots are
    float32. The random bits depend on the position of the variable in the optimizer, the step,
    the place of the row among the rows with a gradient, and the column.
    """

    _slots: tuple[str, ...]  # names of lists with a slot, or None, for each variable
    _is_wrapped = _has_warned = False

    def __new__(cls, *args: Any, **kwargs: Any) -> "RowSparse":
        refuse_wrong_arguments(cls.__name__, kwargs, OF_OPTIMIZERS)
        return super().__new__(cls)

    def __init__(self, **settings: Any) -> None:
        check_optimizer_settings(settings)
        super().__init__(**settings)

    def change(
        self, gradient: jax.Array, variable: keras.Variable, part: _Part, rate: jax.Array
    ) -> jax.Array:
        """Updates a part of the slots; returns what to add to the rows, float32 `[n, ...]`."""
        raise NotImplementedError

    @property
    def loss_scale_factor(self) -> float | None:
        """The argument. A `LossScaleOptimizer` that gets this optimizer sets it to None."""
        return self._loss_scale_factor

    @loss_scale_factor.setter
    def loss_scale_factor(self, value: float | None) -> None:
        self._is_wrapped = value is None and hasattr(self, "_loss_scale_factor")
        self._loss_scale_factor = value

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates the slots. From now on, `Embedding` layers look up rows by `rows.lookup`."""
        if not self.built:
            look_up_embeddings_by_rows()
            super().build(variables)

    def add_variable_from_reference(
        self,
        reference_variable: keras.Variable,
        name: str | None = None,
        initializer: Any = "zeros",
    ) -> keras.Variable | None:
        """Creates a slot of the shape of a variable; float32 for rows in bfloat16."""
        dtype = "float32" if _is_rounded(reference_variable) else reference_variable.dtype
        shape = reference_variable.shape
        return self.add_row_slot(reference_variable, name or "var", dtype, initializer, shape)

    def add_row_slot(
        self,
        variable: keras.Variable,
        name: str,
        dtype: str = "float32",
        initializer: Any = "zeros",
        shape: tuple[int, ...] | None = None,
        on_demand: bool = False,
    ) -> keras.Variable:
        """Creates a slot, by default of one value per row; see `SlotOnDemand`."""
        shape, layout = variable.shape[:1] if shape is None else shape, variable._layout
        if layout is not None:  # the rows are on the devices that have those of the variable
            axes = layout.axes[: len(shape)]
            layout = keras.distribution.TensorLayout(axes, layout.device_mesh)
        with keras.name_scope(self.name, caller=self):
            slot = (SlotOnDemand if on_demand else keras.Variable)(
                shape=(0, *shape[1:]) if on_demand else shape,
                initializer=initializer,
                dtype=dtype,
                trainable=False,
                layout=layout,
                name=f"{variable.path.replace('/', '_')}_{name}",
            )
        slot.num_rows = variable.shape[0] if on_demand else None
        self._track_variable(slot)
        return slot

    def slot_of(self, name: str, variable: keras.Variable) -> keras.Variable | None:
        """Returns the slot of a variable in the list of that name, or None."""
        slots = getattr(self, f"_{name}", None)
        return slots[self._get_variable_index(variable)] if slots else None

    def apply(
        self,
        grads: Iterable[Any],
        trainable_variables: Iterable[keras.Variable] | None = None,
    ) -> None:
        """Applies one step; see `keras.optimizers.Optimizer.apply`."""
        grads, variables = list(grads), self._trainable_variables
        if trainable_variables is not None:
            variables = list(trainable_variables)
        if not variables:
            super().apply(grads, trainable_variables)
            return
        if len(variables) != len(grads):
            raise ValueError(
                "Expected one gradient (or None) for each variable. Received: "
                f"{len(grads)} gradients and {len(variables)} variables."
            )
        self.build(variables)
        grads = [self._by_rows(*pair) for pair in zip(grads, variables, strict=True)]
        values = [_values_of(gradient) for gradient in grads if gradient is not None]
        is_valid = jnp.array([jnp.isfinite(value).all() for value in values]).all()
        ours: set[int] = set()  # what this step updates by rows
        for place, (gradient, variable) in enumerate(zip(grads, variables, strict=True)):
            if isinstance(gradient, _Rows):
                ids = jnp.where(is_valid, gradient.ids, variable.shape[0])
                grads[place] = gradient._replace(ids=ids)
                slots = [self.slot_of(name, variable) for name in self._slots]
                ours.update(id(one) for one in (variable, *slots))
        others = [one for one in (*variables, *self.variables) if id(one) not in ours]
        before = [one.value for one in others]
        super().apply(grads, variables)
        for one, old in zip(others, before, strict=True):
            if (new := one.value) is not old:
                one.assign(jnp.where(is_valid, new, old if old.shape == new.shape else 0))

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        """Updates one variable; only the rows with a gradient, if the gradient has rows."""
        part = _Part(gradient.ids if isinstance(gradient, _Rows) else None)
        gradient = _values_of(gradient).astype(jnp.float32)
        rate = keras.ops.cast(learning_rate, "float32")
        updated = part.read(variable).astype(jnp.float32)
        if self.weight_decay is not None and self._use_weight_decay(variable):
            updated -= updated * self.weight_decay * rate
        updated += self.change(gradient, variable, part, rate)
        if _is_rounded(variable):
            key = jax.random.key(self._get_variable_index(variable))
            updated = _rounded(updated, jax.random.fold_in(key, self.step_number()))
        part.write(variable, updated)

    def step_number(self) -> jax.Array:
        """Returns the number of this step, from 1, an int32 scalar."""
        return keras.ops.cast(self.iterations, "int32") + 1

    def _apply_weight_decay(self, variables: Sequence[keras.Variable]) -> None:
        """Does nothing, because `update_step` decays the rows that it updates."""

    def _clip_gradients(self, grads: Sequence[Any]) -> list[Any]:
        clipped = super()._clip_gradients([_values_of(gradient) for gradient in grads])
        return [
            gradient._replace(values=values) if isinstance(gradient, _Rows) else values
            for gradient, values in zip(grads, clipped, strict=True)
        ]

    def _by_rows(self, gradient: Any, variable: keras.Variable) -> Any:
        """Returns the merged rows of a gradient, or the gradient if it is dense."""
        found, was_looked_up = rows.row_gradient(gradient), rows.was_looked_up(variable)
        if found is not None:
            self._refuse_options(variable)
            return _merged(found, variable.shape[0])
        if was_looked_up and gradient is not None and _has_row_gradients(variable):
            self._report_lost_rows(variable)
        return gradient

    def _refuse_options(self, variable: keras.Variable) -> None:
        name, kind = type(self).__name__, f"'{variable.path}' of shape {variable.shape}"
        if variable.dtype != "float32" and not _is_rounded(variable):
            raise ValueError(
                f"{name} updates float32 variables by rows. Received: variable {kind} and "
                f"dtype {variable.dtype} with a sparse gradient. Keep it in float32 (the "
                "policies mixed_bfloat16 and mixed_float16 do)."
            )
        larger = f"Use a batch that is {self.gradient_accumulation_steps} times as large"
        options = {
            "use_ema": (self.use_ema, "Average checkpoints after training"),
            "gradient_accumulation_steps": (self.gradient_accumulation_steps, larger),
            "constraint": (variable.constraint, "Remove the constraint"),
        }
        for option, (value, instead) in options.items():
            if value:
                raise ValueError(
                    f"{option} reads and writes every row of variable {kind} in each step, "
                    f"but its gradient is sparse and {name} updates only the rows in it. "
                    f"{instead}, or use an optimizer of Keras."
                )

    def _report_lost_rows(self, variable: keras.Variable) -> None:
        name = type(self).__name__
        if self._is_wrapped:
            raise ValueError(
                f"A LossScaleOptimizer divides the gradient of '{variable.path}', and {name} "
                "then does not know its rows. Use the policy mixed_bfloat16, or a constant "
                f"scale: {name}(loss_scale_factor=1024.0) and "
                "Model.compile(auto_scale_loss=False)."
            )
        if not self._has_warned:
            warnings.warn(
                f"{name} got a dense gradient of '{variable.path}', although the loss read "
                f"only some rows of it. So each step reads and writes all {variable.shape[0]} "
                "rows. Compute the gradients and call the optimizer in the same jitted "
                "function, as Model.fit does, without changing the gradients in between, and "
                "without a regularizer on this variable.",
                stacklevel=2,
            )
        self._has_warned = True


@keras.saving.register_keras_serializable(package="tf_largeout")
class LazyAdam(RowSparse, keras.optimizers.Adam):
    """Adam that updates only the rows with a gradient.

    A step takes O(rows with a gradient) time for the class rows of a `LargeOutput` with a
    sampled loss, and for the table of a `keras.layers.Embedding`:

    ```
    v *= beta_2^(steps since the row's last gradient - 1)
    g = sum of the gradients of the row
    v += (g^2 - v) (1 - beta_2)
    w -= learning_rate sqrt(1 - beta_2^(t + row_step_offset)) g / (sqrt(v) + epsilon)
    ```

    where t is the global step. For dense gradients the result is that of
    `keras.optimizers.Adam`. The class of this name for TensorFlow explains the rule.

    Args:
        learning_rate: float, schedule or callable. Defaults to 3e-3.
        beta_1: decay of the first moment for dense gradients. Defaults to 0.9.
        beta_2: decay of the second moment. Defaults to 0.999.
        epsilon: added to the root of v. Defaults to 1e-7.
        weight_decay: None, or decoupled weight decay of the rows with a gradient.
        decay_skipped: whether the moments of a row also decay for the steps in which it had no
            gradient. Defaults to True.
        row_beta_1: decay of the first moment for sparse gradients. Defaults to 0: none.
        row_step_offset: number of steps added to t when v is corrected for sparse gradients.
            Defaults to 300, so that rare rows learn from the first epoch on.
        name: name of the optimizer.
        **kwargs: Arguments of `keras.optimizers.Optimizer`, such as `clipnorm`.

    Raises:
        ValueError: for `amsgrad` and an argument out of range. At a sparse gradient: for
            `use_ema`, `gradient_accumulation_steps`, a `LossScaleOptimizer` around this one, a
            constraint of the variable, and a variable of another dtype than float32.
    """

    _slots = ("momentums", "velocities", "last_steps")

    def __init__(
        self,
        learning_rate: Any = 3e-3,
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
        self.row_beta_1 = real_number("row_beta_1", row_beta_1, 0, most=1, allow_most=False)
        self.row_step_offset = whole_number("row_step_offset", row_step_offset, least=0)

    def build(self, variables: Sequence[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        if self.decay_skipped:
            self._last_steps = [self.add_row_slot(v, "last_step", "int32") for v in variables]

    def add_variable_from_reference(
        self,
        reference_variable: keras.Variable,
        name: str | None = None,
        initializer: Any = "zeros",
    ) -> keras.Variable | None:
        """Creates a slot; None for the first moment if it is not used.

        That of class rows has rows only if sparse gradients use it.
        """
        if name == "momentum" and not (self.beta_1 or self.row_beta_1):
            return None
        if name != "momentum" or not _has_row_gradients(reference_variable):
            return super().add_variable_from_reference(reference_variable, name, initializer)
        shape, needs_rows = reference_variable.shape, self.gradient_accumulation_steps
        slot = self.add_row_slot(reference_variable, name, shape=shape, on_demand=True)
        if self.row_beta_1 or needs_rows:
            slot.assign(jnp.zeros(shape))
        return slot

    def change(
        self, gradient: jax.Array, variable: keras.Variable, part: _Part, rate: jax.Array
    ) -> jax.Array:
        beta_1, offset = self.beta_1, 0
        if part.ids is not None:
            beta_1, offset = self.row_beta_1, self.row_step_offset
        step, last_steps = self.step_number(), self.slot_of("last_steps", variable)
        skipped = None
        if last_steps is not None:
            before = part.read(last_steps)
            skipped = (step - before - 1).astype(jnp.float32)
            skipped = skipped.reshape(skipped.shape + (1,) * (gradient.ndim - skipped.ndim))
            part.write(last_steps, jnp.full_like(before, step))

        def updated(name: str, beta: float, target: jax.Array) -> jax.Array:
            moment = part.read(slot := self.slot_of(name, variable))
            if skipped is not None:
                moment = moment * jnp.exp(skipped * math.log(max(beta, 1e-38)))
            moment = moment + (target - moment) * (1 - beta)
            part.write(slot, moment)
            return moment

        has_momentum = self.slot_of("momentums", variable) is not None
        uses_momentum = has_momentum and (part.ids is None or beta_1)
        mean = updated("momentums", beta_1, gradient) if uses_momentum else gradient
        root = jnp.sqrt(updated("velocities", self.beta_2, jnp.square(gradient)))
        return -mean * self._step_size(rate, step, beta_1, offset) / (root + self.epsilon)

    def _step_size(
        self, rate: jax.Array, step: jax.Array, beta_1: float, offset: int
    ) -> jax.Array:
        # Keras's float32 arithmetic, so that sparse and dense gradients agree.
        beta_1_power = jnp.power(jnp.float32(beta_1), step.astype(jnp.float32))
        beta_2_power = jnp.power(jnp.float32(self.beta_2), (step + offset).astype(jnp.float32))
        return rate * jnp.sqrt(1 - beta_2_power) / (1 - beta_1_power)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["amsgrad"]
        return config | {
            "decay_skipped": self.decay_skipped,
            "row_beta_1": self.row_beta_1,
            "row_step_offset": self.row_step_offset,
        }


@keras.saving.register_keras_serializable(package="tf_largeout")
class RowwiseAdagrad(RowSparse, keras.optimizers.Adagrad):
    """Adagrad with one accumulator per row, to save memory.

    For a variable of rank 2 or more, with sparse and dense gradients:

    ```
    g = sum of the gradients of the row
    a += mean(g^2),  w -= learning_rate g / sqrt(a + epsilon)
    ```

    Variables of rank 0 and 1 are updated by Adagrad.

    Args:
        learning_rate: float, schedule or callable. Defaults to 0.1, about 30 times that of
            `LazyAdam`; usual values are 0.01 to 1.
        initial_accumulator_value: initial value of a. Defaults to 0.
        epsilon: added to a under the root. Defaults to 1e-7.

    The other arguments and the errors are those of `LazyAdam`.
    """

    _slots = ("accumulators",)

    def __init__(
        self,
        learning_rate: Any = 0.1,
        initial_accumulator_value: float = 0.0,
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

    def add_variable_from_reference(
        self,
        reference_variable: keras.Variable,
        name: str | None = None,
        initializer: Any = "zeros",
    ) -> keras.Variable | None:
        """Creates a slot; the accumulator of a matrix has one value per row."""
        if name == "accumulator" and len(reference_variable.shape) > 1:
            return self.add_row_slot(reference_variable, name, initializer=initializer)
        return super().add_variable_from_reference(reference_variable, name, initializer)

    def change(
        self, gradient: jax.Array, variable: keras.Variable, part: _Part, rate: jax.Array
    ) -> jax.Array:
        slot = self.slot_of("accumulators", variable)
        axes = tuple(range(max(len(slot.shape), 1), gradient.ndim))
        total = part.read(slot) + jnp.square(gradient).mean(axes)
        part.write(slot, total)
        scale = rate / jnp.sqrt(total + self.epsilon)
        return -gradient * scale.reshape(scale.shape + (1,) * len(axes))


def look_up_embeddings_by_rows() -> None:
    """Makes gradients of `keras.layers.Embedding` tables sparse, with the results of Keras.

    Keras reads rows by `keras.ops.take`, whose gradient has no rows.
    """
    call = keras.layers.Embedding.call
    if hasattr(call, "_largeout_by_rows"):
        return

    @functools.wraps(call)
    def call_by_rows(layer: keras.layers.Embedding, inputs: Any) -> Any:
        table = layer._embeddings
        is_plain = not layer.lora_enabled and layer.quantization_mode is None
        if not is_plain or not (table.dtype == "float32" or _is_rounded(table)):
            return call(layer, inputs)
        ids = keras.ops.cast(inputs, "int32")
        ids = jnp.where(ids < 0, ids + table.shape[0], ids)
        is_row = (ids >= 0) & (ids < table.shape[0])
        found = jnp.where(is_row[..., None], rows.lookup(table, ids), jnp.nan)  # as jnp.take
        return keras.ops.cast(found, layer.compute_dtype)

    call_by_rows._largeout_by_rows = True  # type: ignore[attr-defined]
    keras.layers.Embedding.call = call_by_rows


def _has_row_gradients(variable: keras.Variable) -> bool:
    return getattr(variable, "has_row_gradients", False)


def _is_rounded(variable: keras.Variable) -> bool:
    return _has_row_gradients(variable) and variable.dtype == "bfloat16"


def _values_of(gradient: Any) -> Any:
    return gradient.values if isinstance(gradient, _Rows) else gradient


def _merged(gradient: rows.RowGradient, num_rows: int) -> _Rows:
    """Sums the rows of equal ids; ids outside of the table become `num_rows`."""
    ids, values = gradient
    ids = jnp.where((ids >= 0) & (ids < num_rows), ids, num_rows)
    distinct, places = jnp.unique(ids, return_inverse=True, size=ids.size, fill_value=num_rows)
    sums = jax.ops.segment_sum(values, places, ids.size)
    is_row = (distinct < num_rows).reshape((-1,) + (1,) * (values.ndim - 1))
    return _Rows(distinct, jnp.where(is_row, sums, 0))


def _rounded(values: jax.Array, key: jax.Array) -> jax.Array:
    """Rounds float32 to bfloat16 at random, up with the probability of the part below it."""
    noise = jax.random.bits(key, values.shape, jnp.uint16).astype(jnp.uint32)
    clipped = jnp.clip(values, -_MOST_FINITE, _MOST_FINITE)
    bits = (jax.lax.bitcast_convert_type(clipped, jnp.uint32) + noise) & 0xFFFF0000
    found = jax.lax.bitcast_convert_type(bits, jnp.float32)
    return jnp.where(jnp.isfinite(values), found, values).astype(jnp.bfloat16)
