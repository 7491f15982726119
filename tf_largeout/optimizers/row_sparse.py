"""`RowSparse`: the base class of the row-sparse optimizers."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_largeout import keras_internals
from tf_largeout.arguments import boolean, is_real, real_number
from tf_largeout.ops import devices, row_ops
from tf_largeout.optimizers import gradients
from tf_largeout.types import Gradient, Shape, Variable
from tf_largeout.variables import (
    bfloat16_rows,
    replicas,
    saved_weights,
    sharded_table,
)
from tf_largeout.wrong_arguments import OF_OPTIMIZERS, refuse_wrong_arguments


class RowStep(NamedTuple):
    """What an optimizer needs in order to update the rows of a variable that have a gradient.

    Attributes:
        values: float32 `[n, ...]`, the gradient rows.
        ids: `[n]`, the row of the variable that each gradient row belongs to; in range, may
            repeat.
        learning_rate: float32 scalar.
        weight_decay: float32 scalar; a row is first multiplied by 1 minus this number.
        rounding: The argument of the `row_ops` for rows in bfloat16; None for float32.
        is_dense: Whether it is a dense gradient of rows in bfloat16: `ids` are all rows, and
            the rule for dense gradients applies.
    """

    values: tf.Tensor
    ids: tf.Tensor
    learning_rate: tf.Tensor
    weight_decay: tf.Tensor
    rounding: tf.Tensor | None = None
    is_dense: bool = False


class RowSparse(keras.optimizers.Optimizer):
    """Makes a Keras optimizer row-sparse for sparse gradients.

    A subclass inherits from this class first, then from the Keras optimizer. The gradient of an
    embedding table, or of class embeddings with a sampled loss, is a `tf.IndexedSlices`. For
    such a gradient, `update_rows` reads and writes only the rows with a gradient, at a cost
    that does not depend on the number of rows. Keras handles other gradients.

    A subclass implements `update_rows`, and `add_slots` if it has more slots than the Keras
    optimizer. This class does the rest. Gradients of repeated ids, and of the replicas of a
    strategy, are summed before they are clipped. Weight decay is decoupled and applied to the
    updated rows only. If the computation of a gradient fails, or an id is out of range, the
    step does not change weights, slots or `iterations`.

    Class rows in bfloat16 (`LargeOutput(embeddings_dtype="bfloat16")`) are updated in float32
    and rounded at random, also for dense gradients. Their slots are float32. The random bits
    depend on the position of the variable in the optimizer, the step, the row and the column.
    """

    _rate_of_step: tf.Tensor | None = None  # in a step without replicas
    _number_of_step: tf.Tensor | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> "RowSparse":
        refuse_wrong_arguments(cls.__name__, kwargs, OF_OPTIMIZERS)
        return super().__new__(cls)

    def __init__(self, **settings: Any) -> None:
        _check(settings)
        super().__init__(**settings)

    def update_rows(self, variable: tf.Variable, step: RowStep) -> None:
        """Updates some rows of `variable` and of its slots in place."""
        raise NotImplementedError

    def update_all(
        self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        """Updates all rows for a dense gradient, as the Keras optimizer does."""
        super().update_step(gradient, variable, learning_rate)

    def add_variable_from_reference(
        self, reference_variable: Variable, name: str | None = None, initializer: str = "zeros"
    ) -> keras.Variable | None:
        """Creates a slot on the device of its variable; float32 for rows in bfloat16."""
        if bfloat16_rows.is_marked(reference_variable):
            return self._add_slot(
                reference_variable, reference_variable.shape, name or "var", initializer
            )
        with devices.device_scope_of(reference_variable):
            slot = super().add_variable_from_reference(reference_variable, name, initializer)
        sharded_table.mark_slot(slot, reference_variable)
        return slot

    def build(self, variables: Sequence[Variable]) -> None:
        """Creates the slots, with the values of a checkpoint that was restored before."""
        if self.built:
            return
        # Here, because a wrapper builds this optimizer before it checks gradients.
        keras_internals.wrap_check_finite(_check_finite_by_rows)
        super().build(variables)
        self.add_slots(variables)
        saved_weights.restore_slots(self)

    def add_slots(self, variables: Sequence[Variable]) -> None:
        """Creates the slots that the Keras optimizer does not have. Subclasses override it."""

    def add_row_slot(
        self, variable: Variable, name: str, dtype: str = "float32", initializer: str = "zeros"
    ) -> keras.Variable:
        """Creates a slot `[num_rows]`, one value per row, on the device of `variable`."""
        return self._add_slot(variable, variable.shape[:1], name, initializer, dtype)

    def _add_slot(
        self,
        variable: Variable,
        shape: Shape,
        name: str,
        initializer: str,
        dtype: str = "float32",
    ) -> keras.Variable:
        place = variable.value if isinstance(variable, keras.Variable) else variable
        strategy = tf.distribute.get_strategy().extended
        with strategy.colocate_vars_with(place), devices.device_scope_of(variable):
            slot = self.add_variable(
                shape=shape,
                initializer=initializer,
                dtype=dtype,
                name=f"{getattr(variable, 'path', variable.name).replace('/', '_')}_{name}",
            )
        sharded_table.mark_slot(slot, variable)
        return slot

    @property
    def variables(self) -> list[keras.Variable | sharded_table.ShardedTable]:
        """The variables, with a table instead of the slots of its shards.

        So a file does not depend on the number of shards, even if another Keras optimizer wraps
        this one, and writes its own variables and these.
        """
        found: list[keras.Variable] = super().variables
        return sharded_table.join_shards(found)

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> Any:
        children = super()._trackable_children(save_type, **kwargs)
        return saved_weights.children(self, children)

    def _lookup_dependency(self, name: str, cached_dependencies: Any = None) -> Any:
        found = super()._lookup_dependency(name, cached_dependencies)
        if self.built or cached_dependencies is None:  # None: no checkpoint is restored
            return found
        return saved_weights.placeholder(self, name, found)

    def apply(
        self,
        grads: Iterable[Gradient | None],
        trainable_variables: Iterable[Variable] | None = None,
    ) -> None:
        """Applies one step; see `keras.optimizers.Optimizer.apply`."""
        self._require_scope()
        grads = list(grads)
        variables = keras_internals.trainable_variables(self)
        if trainable_variables is not None:
            variables = trainable_variables = list(trainable_variables)
        if len(variables) != len(grads) and (self.built or variables):
            raise ValueError(
                "Expected one gradient (or None) for each variable. Received: "
                f"{len(grads)} gradients and {len(variables)} variables."
            )
        if variables:
            grads = self._all_or_none(grads, variables)
        self._rate_of_step = self._number_of_step = None
        super().apply(grads, trainable_variables)
        self._rate_of_step = self._number_of_step = None

    def _require_scope(self) -> None:
        count = tf.distribute.get_strategy().num_replicas_in_sync
        counter = keras_internals.step_counter(self)
        distributed = isinstance(counter.value, tf.distribute.DistributedValues)
        if count > 1 and not distributed:
            raise ValueError(
                f"{type(self).__name__} was created outside of `strategy.scope()`, so each of "
                f"{count} replicas would count the steps. Create it in `strategy.scope()`."
            )

    def _all_or_none(
        self, grads: Sequence[Gradient | None], variables: Sequence[Variable]
    ) -> list[Gradient | None]:
        """Checks gradients, and delays their use and that of `iterations` until all exist."""
        counter = keras_internals.step_counter(self)
        places, checked, updated = [], [], []
        for place, gradient in enumerate(grads):
            if gradient is not None:
                places.append(place)
                updated.append(variables[place])
                checked.append(self._checked_gradient(gradient, variables[place]))
        computed, step = gradients.all_or_none(checked, updated, counter.value)
        counter.assign(step)
        found: list[Gradient | None] = [None] * len(grads)
        for place, gradient in zip(places, computed, strict=True):
            found[place] = gradients.divisible(gradient)
        return found

    def update_step(
        self, gradient: Gradient, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        """Updates one variable, on its device; by rows if the gradient is sparse."""
        if not tf.distribute.has_strategy():
            if self._rate_of_step is None:
                self._rate_of_step = tf.convert_to_tensor(learning_rate)
            learning_rate = self._rate_of_step
        with devices.server_scope_of(variable):
            self._update(gradient, variable, learning_rate)

    def step_number(self, variable: tf.Variable) -> tf.Tensor:
        """Returns an int64 scalar, the number of this step from 1, to update `variable`.

        Without a strategy, the step and the learning rate are read once for all variables, so
        that values that depend on them are computed once and sent to servers once. Under a
        strategy each replica reads its own variables.
        """
        if tf.distribute.has_strategy():
            return self.iterations + 1
        if self._number_of_step is None:
            self._number_of_step = tf.convert_to_tensor(self.iterations)
        return self._number_of_step + 1

    def _update(
        self, gradient: Gradient, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        observed = keras_internals.observed_variable(self, variable)
        is_rounded = bfloat16_rows.is_marked(observed)
        dtype = tf.float32 if is_rounded else variable.dtype
        learning_rate = tf.cast(learning_rate, dtype)
        decays = keras_internals.decays_weight(self, variable)
        decay = tf.cast(self.weight_decay if decays else 0.0, dtype)
        is_sparse = isinstance(gradient, tf.IndexedSlices)
        if is_sparse or is_rounded:
            values, ids = gradient, None
            if is_sparse:
                values, ids = gradient.values, gradient.indices
            with replicas.notify_observers(observed, variable, ids):
                if not is_sparse:
                    ids = tf.range(variable.shape[0], dtype=tf.int64)
                rates = learning_rate, decay * learning_rate
                rounding = self._rounding(variable) if is_rounded else None
                step = RowStep(tf.cast(values, dtype), ids, *rates, rounding, not is_sparse)
                self.update_rows(variable, step)
            return
        with replicas.notify_observers(observed, variable):
            if decays:
                gradient, decay = tf.identity_n([gradient, decay])
                variable.assign_sub(variable * decay * learning_rate)
            self.update_all(gradient, variable, learning_rate)

    def _rounding(self, variable: tf.Variable) -> tf.Tensor:
        """Returns the seed and the step that determine how rows in bfloat16 are rounded."""
        place = keras_internals.index_of(self, variable)
        return tf.stack([tf.constant(place, tf.int64), self.step_number(variable)])

    def _apply_weight_decay(self, variables: Sequence[Variable]) -> None:
        """Does nothing, because `update_step` decays the rows that it updates."""

    def _clip_gradients(self, grads: Sequence[Gradient | None]) -> list[Gradient | None]:
        if not self._clips():
            return list(grads)
        # The norm is computed from the merged rows of all replicas.
        pairs = self._summed([(gradient, None) for gradient in grads])
        grads = [gradients.merged(gradient) for gradient, _ in pairs]
        values = super()._clip_gradients([gradients.values_of(gradient) for gradient in grads])
        return [gradients.with_values(g, v) for g, v in zip(grads, values, strict=True)]

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        return grads_and_vars if self._clips() else self._summed(grads_and_vars)

    def _summed(self, grads_and_vars: Any) -> Any:
        # With one replica there is nothing to sum, but Keras would make TensorFlow copy dense
        # gradients from the servers of the variables.
        if tf.distribute.get_strategy().num_replicas_in_sync == 1:
            return grads_and_vars
        return super()._all_reduce_sum_gradients(grads_and_vars)

    def _clips(self) -> bool:
        return bool(self.clipnorm or self.clipvalue or self.global_clipnorm)

    def _checked_gradient(self, gradient: Gradient, variable: Variable) -> Gradient:
        if not isinstance(gradient, tf.IndexedSlices):
            return gradient
        devices.check_device(variable)
        self._check_options(variable)
        with devices.server_scope_of(variable):
            ids = row_ops.check_row_ids(gradient.indices, variable.shape[0])
        shape = gradient.dense_shape
        return tf.IndexedSlices(
            gradient.values, ids, None if shape is None else tf.convert_to_tensor(shape)
        )

    def _check_options(self, variable: Variable) -> None:
        name = getattr(variable, "path", variable.name)
        dtype = keras.backend.standardize_dtype(variable.dtype)
        if dtype != "float32" and not bfloat16_rows.is_marked(variable):
            raise ValueError(
                f"{type(self).__name__} updates float32 variables by rows. Received: variable "
                f"'{name}' of dtype {variable.dtype} with a sparse gradient. Keep it in "
                "float32 (the policies mixed_bfloat16 and mixed_float16 do)."
            )
        for option, used, instead in (
            ("use_ema", self.use_ema, "Average checkpoints after training"),
            (
                "gradient_accumulation_steps",
                self.gradient_accumulation_steps,
                f"Use a batch that is {self.gradient_accumulation_steps} times as large",
            ),
            (
                "constraint",
                getattr(variable, "constraint", None) is not None,
                "Remove the constraint",
            ),
        ):
            if used:
                raise ValueError(
                    f"{option} reads and writes every row of variable '{name}' of shape "
                    f"{tuple(variable.shape)} in each step, but its gradient is sparse and "
                    f"{type(self).__name__} updates only the rows in it. {instead}, or use "
                    f"keras.optimizers.{self._keras_class()}."
                )

    def _keras_class(self) -> str:
        classes = type(self).__mro__
        return next(c.__name__ for c in classes if c.__module__.startswith("keras."))


def _check_finite_by_rows(check_finite: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Returns a `check_finite` of `LossScaleOptimizer` that reads only the rows of gradients.

    That of Keras converts `IndexedSlices` to a boolean tensor of the variable's shape. If the
    wrapped optimizer is not one of ours, the new method calls the old one. With several
    replicas, the result is true if the gradients of all are finite. (Keras checks only the
    first replica.)
    """

    @functools.wraps(check_finite)
    def check_by_rows(
        self: keras.optimizers.LossScaleOptimizer, grads: Sequence[Gradient | None]
    ) -> tf.Tensor:
        inner = self.inner_optimizer
        parts = getattr(inner, "optimizers", [inner])  # of a MultiOptimizer
        if not any(isinstance(one, RowSparse) for one in parts):
            return check_finite(self, grads)
        failed = ~check_finite(self, [gradients.values_of(one) for one in grads])
        return tf.equal(replicas.summed(tf.cast(failed, tf.float32)), 0)

    return check_by_rows


def _check(settings: dict[str, Any]) -> None:
    """Raises a ValueError for a setting out of range, which Keras would accept."""
    for name, value in settings.items():
        if name in ("beta_1", "beta_2"):
            real_number(name, value, least=0, most=1, allow_most=False)
        elif name in ("epsilon", "initial_accumulator_value", "momentum"):
            real_number(name, value, least=0)
        elif name == "weight_decay" and value is not None:
            real_number(name, value, least=0)
        elif name == "learning_rate" and is_real(value):  # or a schedule
            real_number(name, value, least=0)
        elif name == "nesterov":
            boolean(name, value)
