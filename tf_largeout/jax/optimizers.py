"""Keras optimizers that update only the rows of a variable that have a gradient, on JAX.

Rules, arguments, configs and saved states are those on TensorFlow, whose docstrings explain
them.
"""

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import keras
from jax import Array
from keras import Variable

from tf_largeout import optimizer_settings as settings
from tf_largeout.jax import rows

_DISTINCT: dict[str, Any] = {"indices_are_sorted": True, "unique_indices": True}
_call_of_keras = keras.layers.Embedding.call
_MOST_FINITE = float(jnp.finfo(jnp.bfloat16).max)


class _Rows(NamedTuple):
    """The rows of a gradient: distinct ids `[n]`, ascending, and the sums `[n, ...]` of each.

    The last ids may be the number of rows of the variable, which updates drop, with sums of 0.
    """

    ids: Array
    values: Array

    def __truediv__(self, scale: float) -> "_Rows":  # Keras unscales gradients with it
        return self._replace(values=self.values / scale)


class SlotOnDemand(keras.Variable):
    """A slot of zeros `[num_rows, ...]`, of shape `[0, ...]` until a step or a file needs rows.

    Rows appear while a step is traced. This step gets a value without rows and returns one with
    rows, so JAX traces the next step again.
    """

    num_rows: int
    _shape: Any

    def create_rows(self) -> None:
        """Makes the shape that of the variable; the rows are zeros until they are assigned."""
        self._shape = (self.num_rows, *self._shape[1:])

    @property
    def value(self) -> Array:
        value = super().value
        return value if value.shape == self.shape else jnp.zeros(self.shape, value.dtype)

    def assign(self, value: Any) -> Array:
        """Sets all rows. A value without rows means zeros."""
        value = self._convert_to_tensor(value, self._dtype)
        if value.shape == (self.num_rows, *self.shape[1:]):
            self.create_rows()
        elif value.shape == (0, *self.shape[1:]):
            value = jnp.zeros(self.shape, self._dtype)
        return super().assign(value)


class RowSparse(settings.RowSparseSettings, keras.optimizers.Optimizer):
    """Makes a Keras optimizer row-sparse for gradients with rows (`rows.row_gradient`).

    A subclass inherits from this class first, then from the Keras optimizer. It implements
    `change(gradient, variable, ids, rate)`, which updates the slots of the rows `ids` (None for
    all rows), and returns what to add to these rows, in float32.

    With dense gradients, the results are those of the Keras optimizer. Gradients of repeated
    ids are summed before they are clipped. Weight decay is decoupled and applied to the updated
    rows only. A step with a gradient that is not finite changes nothing. Class rows in bfloat16
    are updated in float32 and rounded at random, and their slots are float32.
    """

    _slots: tuple[str, ...]  # lists with a slot, or None, for each variable
    _is_wrapped = _has_warned = False

    @property
    def loss_scale_factor(self) -> float | None:
        """The argument. A `LossScaleOptimizer` around this one sets it to None."""
        return self._loss_scale_factor

    @loss_scale_factor.setter
    def loss_scale_factor(self, value: float | None) -> None:
        self._is_wrapped = value is None and hasattr(self, "_loss_scale_factor")
        self._loss_scale_factor = value

    def build(self, variables: Sequence[Variable]) -> None:
        """Creates the slots. From now on, `Embedding` layers have sparse gradients."""
        if not self.built:
            keras.layers.Embedding.call = _call_embedding
            for variable in variables:
                if self.use_ema and _is_class_table(variable):
                    self.check_sparse(variable, True)  # in a step, Keras hides its error
            super().build(variables)

    def add_variable_from_reference(
        self, reference_variable: Variable, name: str = "var", initializer: Any = "zeros"
    ) -> Variable | None:
        """Creates a slot of the shape of a variable; float32 for rows in bfloat16."""
        dtype = "float32" if _is_rounded(reference_variable) else reference_variable.dtype
        shape = reference_variable.shape
        return self.add_slot(reference_variable, name, shape, dtype, initializer)

    def add_slot(
        self,
        variable: Variable,
        name: str,
        shape: tuple[int, ...],
        dtype: str = "float32",
        initializer: Any = "zeros",
        kind: type[Variable] = keras.Variable,
    ) -> Variable:
        """Creates a slot whose rows are on the devices of the rows of `variable`."""
        layout = variable._layout
        if isinstance(layout, jax.sharding.NamedSharding):  # in Keras 3.12
            spec = jax.sharding.PartitionSpec(*layout.spec[: len(shape)])
            layout = jax.sharding.NamedSharding(layout.mesh, spec)
        elif layout is not None:
            axes = layout.axes[: len(shape)]
            layout = keras.distribution.TensorLayout(axes, layout.device_mesh)
        name = f"{variable.path.replace('/', '_')}_{name}"
        with keras.name_scope(self.name, caller=self):
            slot = kind(initializer, shape, dtype, False, layout=layout, name=name)
        self._track_variable(slot)
        return slot

    def slot_of(self, name: str, variable: Variable) -> Variable | None:
        """Returns the slot of a variable in the list of that name, or None."""
        slots = getattr(self, f"_{name}", None)
        return slots[self._get_variable_index(variable)] if slots else None

    def apply(
        self, grads: Iterable[Any], trainable_variables: Iterable[Variable] | None = None
    ) -> None:
        """Applies one step; see `keras.optimizers.Optimizer.apply`."""
        grads, variables = list(grads), self._trainable_variables
        if trainable_variables is not None:
            variables = list(trainable_variables)
        if not variables:
            super().apply(grads, trainable_variables)
            return
        self.check_number(grads, variables)
        self.build(variables)
        grads = [self._with_rows(g, v) for g, v in zip(grads, variables, strict=True)]
        values = [_values_of(gradient) for gradient in grads if gradient is not None]
        is_valid = jnp.array([jnp.isfinite(one).all() for one in values]).all()
        by_rows: set[int] = set()
        for place, (gradient, variable) in enumerate(zip(grads, variables, strict=True)):
            if isinstance(gradient, _Rows):
                ids = jnp.where(is_valid, gradient.ids, variable.shape[0])
                grads[place] = gradient._replace(ids=ids)
                slots = [self.slot_of(name, variable) for name in self._slots]
                by_rows.update(map(id, [variable, *slots]))
        others = [v for v in [*variables, *self.variables] if id(v) not in by_rows]
        before = [variable.value for variable in others]
        super().apply(grads, variables)
        for variable, old in zip(others, before, strict=True):
            if (new := variable.value) is not old:
                old = old if old.shape == new.shape else 0  # of a slot on demand
                variable.assign(jnp.where(is_valid, new, old))

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        """Updates one variable, or only its rows with a gradient if the gradient has rows."""
        ids = gradient.ids if isinstance(gradient, _Rows) else None
        rate = keras.ops.cast(learning_rate, "float32")
        new = _read(variable, ids).astype(jnp.float32)
        if self.weight_decay is not None and self._use_weight_decay(variable):
            new -= new * self.weight_decay * rate
        new += self.change(_values_of(gradient).astype(jnp.float32), variable, ids, rate)
        if _is_rounded(variable):
            key = jax.random.key(self._get_variable_index(variable))
            new = _rounded(new, jax.random.fold_in(key, self.step_number()))
        _write(variable, ids, new)

    def step_number(self) -> Array:
        """Returns the number of this step, from 1, an int32 scalar."""
        return keras.ops.cast(self.iterations, "int32") + 1

    def _apply_weight_decay(self, variables: Sequence[Variable]) -> None:
        """Does nothing, because `update_step` decays the rows that it updates."""

    def _clip_gradients(self, grads: Sequence[Any]) -> list[Any]:
        clipped = super()._clip_gradients([_values_of(gradient) for gradient in grads])
        return [
            gradient._replace(values=values) if isinstance(gradient, _Rows) else values
            for gradient, values in zip(grads, clipped, strict=True)
        ]

    def _with_rows(self, gradient: Any, variable: Variable) -> Any:
        """Returns the merged rows of a gradient, or the gradient if it is dense."""
        found, was_looked_up = rows.row_gradient(gradient), rows.was_looked_up(variable)
        if found is not None:
            self.check_sparse(variable, _is_rounded(variable))
            return _merged(found, variable.shape[0])
        if was_looked_up and gradient is not None and _is_class_table(variable):
            self._report_lost_rows(variable)
        return gradient

    def _report_lost_rows(self, variable: Variable) -> None:
        name = type(self).__name__
        if self._is_wrapped:
            raise ValueError(
                f"A LossScaleOptimizer divides the gradient of '{variable.path}', and {name} "
                "then does not know its rows. Use the policy mixed_bfloat16, or a constant "
                f"scale: {name}(loss_scale_factor=1024.0) and compile(auto_scale_loss=False)."
            )
        if not self._has_warned:
            warnings.warn(
                f"{name} got a dense gradient of '{variable.path}', although the loss reads "
                f"only some of its rows. So each step updates all {variable.shape[0]} rows. "
                "Compute gradients and call the optimizer in one jitted function, as Model.fit "
                "does, do not change the gradients, and use no regularizer of this variable.",
                stacklevel=2,
            )
        self._has_warned = True


@keras.saving.register_keras_serializable(package="tf_largeout")
class LazyAdam(settings.AdamSettings, RowSparse, keras.optimizers.Adam):
    """Adam that updates only the rows with a gradient.

    A step takes O(rows with a gradient) time for the class rows of a `LargeOutput` with a
    sampled loss, and for the table of a `keras.layers.Embedding`.

    A step with a sparse gradient raises a ValueError for `use_ema`,
    `gradient_accumulation_steps`, a `LossScaleOptimizer` around this optimizer, a constraint of
    the variable, and a variable of another dtype than float32.
    """

    _slots = ("momentums", "velocities", "last_steps")

    def build(self, variables: Sequence[Variable]) -> None:
        if not self.built:
            super().build(variables)
            if self.decay_skipped:
                slots = [self.add_slot(v, "last_step", v.shape[:1], "int32") for v in variables]
                self._last_steps = slots

    def add_variable_from_reference(
        self, reference_variable: Variable, name: str = "var", initializer: Any = "zeros"
    ) -> Variable | None:
        """Creates a slot; no first moment if it is not used, or without rows until it is."""
        if name == "momentum" and not (self.beta_1 or self.row_beta_1):
            return None
        if name != "momentum" or not _is_class_table(reference_variable):
            return super().add_variable_from_reference(reference_variable, name, initializer)
        shape = (0, *reference_variable.shape[1:])
        slot = self.add_slot(reference_variable, name, shape, kind=SlotOnDemand)
        slot.num_rows = reference_variable.shape[0]
        if self.row_beta_1 or self.gradient_accumulation_steps or self._is_wrapped:
            slot.assign(jnp.zeros(reference_variable.shape))
        return slot

    def change(
        self, gradient: Array, variable: Variable, ids: Array | None, rate: Array
    ) -> Array:
        step, beta_1, offset = self.step_number(), self.beta_1, 0
        if ids is not None:
            beta_1, offset = self.row_beta_1, self.row_step_offset
        skipped: Array | int = 0
        if self.decay_skipped:
            last_step = self.slot_of("last_steps", variable)
            before = _read(last_step, ids)
            skipped = _column(step - before - 1, gradient).astype(jnp.float32)
            # The maximum is `step`. XLA does not know this, so it reads before it writes.
            _write(last_step, ids, jnp.maximum(before, step))

        def updated(slot: Variable, beta: float, target: Array) -> Array:
            moment = _read(slot, ids) * jnp.exp(skipped * math.log(max(beta, 1e-38)))
            moment = moment + (target - moment) * (1 - beta)
            _write(slot, ids, moment)
            return moment

        momentum, mean = self.slot_of("momentums", variable), gradient
        if momentum is not None and (beta_1 or ids is None):
            mean = updated(momentum, beta_1, gradient)
        velocity = self.slot_of("velocities", variable)
        root = jnp.sqrt(updated(velocity, self.beta_2, jnp.square(gradient)))
        # Keras's float32 arithmetic, so that sparse and dense gradients agree.
        beta_1_power = jnp.power(jnp.float32(beta_1), step.astype(jnp.float32))
        beta_2_power = jnp.power(jnp.float32(self.beta_2), (step + offset).astype(jnp.float32))
        step_size = rate * jnp.sqrt(1 - beta_2_power) / (1 - beta_1_power)
        return -mean * step_size / (root + self.epsilon)


@keras.saving.register_keras_serializable(package="tf_largeout")
class RowwiseAdagrad(settings.RowwiseAdagradSettings, RowSparse, keras.optimizers.Adagrad):
    """Adagrad with one accumulator per row of a matrix, to save memory; see `LazyAdam`."""

    _slots = ("accumulators",)

    def add_variable_from_reference(
        self, reference_variable: Variable, name: str = "var", initializer: Any = "zeros"
    ) -> Variable | None:
        """Creates a slot; the accumulator of a matrix has one value per row."""
        shape = reference_variable.shape
        if name == "accumulator" and len(shape) > 1:
            return self.add_slot(reference_variable, name, shape[:1], initializer=initializer)
        return super().add_variable_from_reference(reference_variable, name, initializer)

    def change(
        self, gradient: Array, variable: Variable, ids: Array | None, rate: Array
    ) -> Array:
        accumulator = self.slot_of("accumulators", variable)
        squares = jnp.square(gradient).mean(axis=tuple(range(1, gradient.ndim)))
        total = _read(accumulator, ids) + squares
        _write(accumulator, ids, total)
        return -gradient * _column(rate / jnp.sqrt(total + self.epsilon), gradient)


def _read(variable: Variable, ids: Array | None) -> Array:
    if ids is not None:
        return variable.value.at[ids].get(mode="fill", fill_value=0, **_DISTINCT)
    if isinstance(variable, SlotOnDemand):
        variable.create_rows()
    return variable.value


def _write(variable: Variable, ids: Array | None, values: Array) -> None:
    values = values.astype(variable.dtype)
    if ids is None:
        variable.assign(values)
        return
    table, dtype = variable.value, values.dtype
    # XLA for CPUs would convert a whole table of bfloat16 to float32 and back. As integers, it
    # is only copied. Other tables are updated in place, if the state of the step is donated.
    as_bits = dtype == jnp.bfloat16 and jax.default_backend() == "cpu"
    if as_bits:
        table, values = (jax.lax.bitcast_convert_type(x, jnp.uint16) for x in (table, values))
    table = table.at[ids].set(values, mode="drop", **_DISTINCT)
    variable.assign(jax.lax.bitcast_convert_type(table, dtype) if as_bits else table)


def _column(vector: Array, like: Array) -> Array:
    """Reshapes `[n]` to `[n, 1, ...]`, of the rank of `like`."""
    return vector.reshape(vector.shape + (1,) * (like.ndim - vector.ndim))


def _is_class_table(variable: Variable) -> bool:
    return getattr(variable, "has_row_gradients", False)


def _is_rounded(variable: Variable) -> bool:
    return _is_class_table(variable) and variable.dtype == "bfloat16"


def _values_of(gradient: Any) -> Any:
    return gradient.values if isinstance(gradient, _Rows) else gradient


def _merged(gradient: rows.RowGradient, num_rows: int) -> _Rows:
    """Sums the rows of equal ids; ids outside of the table become `num_rows`."""
    ids, values = gradient
    ids = jnp.where((ids >= 0) & (ids < num_rows), ids, num_rows)
    options = {"size": ids.size, "fill_value": num_rows}
    distinct, places = jnp.unique(ids, return_inverse=True, **options)
    sums = jax.ops.segment_sum(values, places, ids.size)
    return _Rows(distinct, jnp.where(_column(distinct < num_rows, sums), sums, 0))


def _rounded(values: Array, key: Array) -> Array:
    """Rounds float32 to bfloat16, up with the probability (x - lower) / (upper - lower)."""
    noise = jax.random.bits(key, values.shape, jnp.uint16).astype(jnp.uint32)
    finite = jnp.clip(values, -_MOST_FINITE, _MOST_FINITE)
    bits = (jax.lax.bitcast_convert_type(finite, jnp.uint32) + noise) & jnp.uint32(0xFFFF0000)
    found = jax.lax.bitcast_convert_type(bits, jnp.float32)
    return jnp.where(jnp.isfinite(values), found, values).astype(jnp.bfloat16)


def _call_embedding(layer: keras.layers.Embedding, inputs: Any) -> Any:
    """The `call` of `keras.layers.Embedding`, with a sparse gradient and the same results."""
    table, is_plain = layer._embeddings, layer.quantization_mode is None
    is_plain &= not layer.lora_enabled and (table.dtype == "float32" or _is_rounded(table))
    if not is_plain:
        return _call_of_keras(layer, inputs)
    ids = keras.ops.cast(inputs, "int32")
    ids = jnp.where(ids < 0, ids + table.shape[0], ids)
    is_row = (ids >= 0) & (ids < table.shape[0])
    found = jnp.where(is_row[..., None], rows.Table(table).lookup(ids), jnp.nan)  # as jnp.take
    return keras.ops.cast(found, layer.compute_dtype)
