"""`RowSparse`: the base class of the row-sparse optimizers."""

import contextlib
import functools
import inspect
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_largeout import checks, keras_internals
from tf_largeout.keras_internals import running_step
from tf_largeout.ops import devices, places, row_ops
from tf_largeout.optimizer_settings import RowSparseSettings
from tf_largeout.types import Gradient, Scalar, Shape, Variable
from tf_largeout.variables import class_rows, replicas, saved_weights


class RowStep(NamedTuple):
    """What an optimizer needs in order to update the rows of a variable that have a gradient.

    `is_dense` marks a dense gradient of rows in bfloat16: `ids` are all rows, and the rule for
    dense gradients applies.
    """

    values: tf.Tensor  # float32 [n, ...], the gradient rows
    ids: tf.Tensor  # [n], the row of the variable for each; in range, may repeat
    learning_rate: tf.Tensor  # float32 scalar
    weight_decay: tf.Tensor  # float32 scalar; a row is first multiplied by 1 minus it
    rounding: tf.Tensor | None = None  # as in `row_ops` for rows in bfloat16; else None
    is_dense: bool = False


class RowSparse(RowSparseSettings, keras.optimizers.Optimizer):
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
    _is_valid: tf.Tensor | None = None  # if a step cannot raise errors: whether it may update

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
        is_rounded = class_rows.is_marked(reference_variable)
        dtype = "float32" if is_rounded else reference_variable.dtype
        options = dtype, initializer, reference_variable.shape
        return self.add_row_slot(reference_variable, name or "var", *options)

    def build(self, variables: Sequence[Variable]) -> None:
        """Creates the slots, with the values of a checkpoint that was restored before."""
        if self.built:
            return
        # Here, because a wrapper builds this optimizer before it checks gradients.
        keras_internals.replace_check_finite(_check_finite_by_rows)
        super().build(variables)
        self.add_slots(variables)
        if hasattr(self, saved_weights.AWAITED):
            saved_weights.restore_slots(self)

    def add_slots(self, variables: Sequence[Variable]) -> None:
        """Creates the slots that the Keras optimizer does not have. Subclasses override it."""

    def add_row_slot(
        self,
        variable: Variable,
        name: str,
        dtype: str = "float32",
        initializer: str = "zeros",
        shape: Shape | None = None,
        on_demand: bool = False,
    ) -> keras.Variable:
        """Creates a slot on the device of `variable`, by default one value per row.

        With `on_demand`, it is a `SlotOnDemand` of zeros, which has rows under a strategy.
        """
        options: dict[str, Any] = {
            "shape": variable.shape[:1] if shape is None else shape,
            "initializer": initializer,
            "dtype": dtype,
            "name": f"{getattr(variable, 'path', variable.name).replace('/', '_')}_{name}",
        }
        place = variable.value if isinstance(variable, keras.Variable) else variable
        has_strategy = tf.distribute.has_strategy()
        strategy = tf.distribute.get_strategy().extended
        with strategy.colocate_vars_with(place), devices.device_scope_of(variable):
            if not on_demand:
                slot = self.add_variable(**options)
            else:
                # A trace would initialize the slot after its first step.
                trace = contextlib.nullcontext() if has_strategy else tf.init_scope()
                with trace, devices.device_scope_of(variable):
                    slot = keras_internals.add_slot_on_demand(
                        self, variable.shape[0], has_strategy, **options
                    )
        if hasattr(variable, class_rows.TABLE):
            setattr(slot, class_rows.SLOT_OF, variable)
        return slot

    @property
    def variables(self) -> list[keras.Variable | class_rows.ShardedTable]:
        """The variables, with a table instead of the slots of its shards.

        So a file does not depend on the number of shards, even if another Keras optimizer wraps
        this one, and writes its own variables and these.
        """
        return class_rows.join_shards(super().variables)

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
        count = tf.distribute.get_strategy().num_replicas_in_sync
        counter = keras_internals.step_counter(self)
        if count > 1 and not isinstance(counter.value, tf.distribute.DistributedValues):
            raise ValueError(
                f"{type(self).__name__} was created outside of `strategy.scope()`, so each of "
                f"{count} replicas would count the steps. Create it in `strategy.scope()`."
            )
        grads = list(grads)
        if trainable_variables is None:
            variables = keras_internals.trainable_variables(self)
        else:
            variables = trainable_variables = list(trainable_variables)
        if len(variables) != len(grads) and (self.built or variables):
            self.check_number(grads, variables)  # raises the error
        self._is_valid = None
        if variables:
            grads, step = self._all_or_none(grads, variables, counter.value)
            counter.assign(step)
        self._rate_of_step = self._number_of_step = None
        super().apply(grads, trainable_variables)
        if self._is_valid is not None:
            counter.assign(tf.where(self._is_valid, counter.value, step))
        self._rate_of_step = self._number_of_step = self._is_valid = None

    def _all_or_none(
        self, grads: Sequence[Gradient | None], variables: Sequence[Variable], step: tf.Tensor
    ) -> tuple[list[Gradient | None], tf.Tensor]:
        """Checks gradients; returns them and `step`. None can be read before all are computed.

        The method uses data dependencies. With control dependencies on the gradients of a
        `while_loop`, as in RNN layers, the first steps of a `tf.function` fail at random in
        TensorFlow 2.21. Gradients of variables on other machines (of shards) stay there: this
        machine waits for a signal from each server, and then sends a signal to each.
        """
        checked, servers = [], []
        kept: dict[str | None, list[tf.Tensor]] = {None: []}
        are_on_gpu = False
        for gradient, variable in zip(grads, variables, strict=True):
            are_on_gpu |= devices.is_on_gpu(variable)
            checked.append(self._checked(gradient, variable))
            servers.append(devices.server_of(variable))
            if gradient is not None:
                parts = tf.nest.flatten(checked[-1], expand_composites=True)
                kept.setdefault(servers[-1], []).extend(parts)
        local = kept.pop(None)
        if are_on_gpu or (tf.inside_function() and running_step().is_compiled):
            self._is_valid = self._may_update(checked, variables)
        if kept:
            arrived = []  # numbers that can be read only after all parts are computed
            for server, parts in kept.items():
                with tf.device(server), tf.control_dependencies(parts):
                    arrived.append(tf.identity(tf.size(parts[0])))
            with tf.control_dependencies(arrived):
                step = tf.identity(step)
        # The step comes first: TensorFlow's graph optimizer may remove an IdentityN, which then
        # makes nothing wait, but not one whose first input is the value of a variable.
        if are_on_gpu:
            step, *local = _joined_except_ids(step, local)
        else:
            step, *local = tf.identity_n([step, *local])
        for server, parts in kept.items():
            with tf.device(server), tf.control_dependencies([step]):
                kept[server] = [tf.identity(part) for part in parts]
        kept[None] = local
        found: list[Gradient | None] = []
        for gradient, server in zip(checked, servers, strict=True):
            if gradient is not None:
                count = len(tf.nest.flatten(gradient, expand_composites=True))
                parts, kept[server] = kept[server][:count], kept[server][count:]
                gradient = tf.nest.pack_sequence_as(gradient, parts, expand_composites=True)
            if isinstance(gradient, tf.Tensor) and self.gradient_accumulation_steps:
                if self._is_valid is not None:  # else it would stay in the sum of the gradients
                    gradient = tf.where(self._is_valid, gradient, tf.zeros_like(gradient))
            if isinstance(gradient, tf.IndexedSlices):
                gradient = _RowGradient(gradient.values, gradient.indices, gradient.dense_shape)
            found.append(gradient)
        return found, step

    def update_step(
        self, gradient: Gradient, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        """Updates one variable, on its device; by rows if the gradient is sparse."""
        if not tf.distribute.has_strategy():
            if self._rate_of_step is None:
                self._rate_of_step = tf.convert_to_tensor(learning_rate)
            learning_rate = self._rate_of_step
        place, observed, decays = keras_internals.known_variable(self, variable)
        is_sparse, rounding = isinstance(gradient, tf.IndexedSlices), None
        is_rounded = class_rows.is_marked(observed)
        dtype = tf.float32 if is_rounded else variable.dtype
        with devices.server_scope_of(variable):
            learning_rate = tf.cast(learning_rate, dtype)
            decay = tf.cast(self.weight_decay if decays else 0.0, dtype)
            if not (is_sparse or is_rounded):
                before = []
                if self._is_valid is not None:
                    before = self._before_update(variable, place)
                with replicas.notify_observers(observed, variable):
                    if decays:
                        with tf.control_dependencies([gradient]):
                            decay = tf.identity(decay)
                        variable.assign_sub(variable * decay * learning_rate)
                    self.update_all(gradient, variable, learning_rate)
                for one, value in before:
                    one.assign(tf.where(self._is_valid, one, value))
                return
            if is_sparse:
                values, ids = gradient.values, gradient.indices
            else:
                values, ids = gradient, tf.range(variable.shape[0], dtype=tf.int64)
            if self._is_valid is not None and places.are_on_host(ids):
                values = checks.valid_only_if(self._is_valid, values)  # NaN changes no row
            elif self._is_valid is not None:
                ids = tf.where(self._is_valid, ids, -1)
            with replicas.notify_observers(observed, variable, ids) as ids:
                if is_rounded:
                    seed = tf.constant(place, tf.int64)
                    rounding = tf.stack([seed, self.step_number(variable)])
                rates = learning_rate, decay * learning_rate
                step = RowStep(tf.cast(values, dtype), ids, *rates, rounding, not is_sparse)
                self.update_rows(variable, step)

    def _may_update(
        self, grads: Sequence[Gradient | None], variables: Sequence[Variable]
    ) -> tf.Tensor:
        """Returns whether all gradients are finite and all ids are rows, a bool scalar.

        A step on a GPU, or that XLA compiles, cannot raise errors. If the result is false, it
        changes no variable, slot or counter of this optimizer.
        """
        may_update = tf.constant(True)
        for gradient, variable in zip(grads, variables, strict=True):
            if isinstance(gradient, tf.IndexedSlices):
                ids = gradient.indices
                may_update &= tf.reduce_all((ids >= -1) & (ids < variable.shape[0]))
            if gradient is not None:
                may_update &= checks.are_all_finite([_values_of(gradient)])
        return may_update

    def _before_update(self, variable: tf.Variable, place: int) -> list[tuple[Any, Any]]:
        """Returns a variable, its slots, and the values of both before an update of all rows.

        The value of a slot without rows, a `SlotOnDemand`, is 0.
        """
        slots = [slots[place] for slots, _ in keras_internals.slot_lists(self)]
        found = []
        for one in [variable, *slots]:
            has_no_rows = isinstance(one, keras_internals.SlotOnDemand) and not one.shape[0]
            if one is not None:
                found.append((one, 0 if has_no_rows else tf.convert_to_tensor(one)))
        return found

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

    def _apply_weight_decay(self, variables: Sequence[Variable]) -> None:
        """Does nothing, because `update_step` decays the rows that it updates."""

    def _clip_gradients(self, grads: Sequence[Gradient | None]) -> list[Gradient | None]:
        if not (self.clipnorm or self.clipvalue or self.global_clipnorm):
            return list(grads)
        # The norm is computed from the merged rows of all replicas.
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            pairs = [(gradient, None) for gradient in grads]
            grads = [gradient for gradient, _ in super()._all_reduce_sum_gradients(pairs)]
        grads = [_merged(gradient) for gradient in grads]
        values = super()._clip_gradients([_values_of(gradient) for gradient in grads])
        return [_with_values(g, v) for g, v in zip(grads, values, strict=True)]

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        # Clipped gradients are summed already. With one replica there is nothing to sum, but
        # Keras would make TensorFlow copy dense gradients from the servers of the variables.
        is_summed = self.clipnorm or self.clipvalue or self.global_clipnorm
        if is_summed or tf.distribute.get_strategy().num_replicas_in_sync == 1:
            return grads_and_vars
        return super()._all_reduce_sum_gradients(grads_and_vars)

    def _checked(self, gradient: Gradient | None, variable: Variable) -> Gradient | None:
        """Checks a sparse gradient and the variable; returns it with checked ids."""
        if not isinstance(gradient, tf.IndexedSlices):
            return gradient
        if devices.is_on_gpu(variable):
            devices.check_device(variable)
        # A step calls only what it needs; `check_sparse` raises the error.
        needs_all = self.use_ema or self.gradient_accumulation_steps
        if needs_all or variable.dtype != "float32" or getattr(variable, "constraint", None):
            self.check_sparse(variable, class_rows.is_marked(variable))
        with devices.server_scope_of(variable):
            ids = row_ops.check_row_ids(gradient.indices, variable.shape[0])
        shape = gradient.dense_shape
        return tf.IndexedSlices(
            gradient.values, ids, None if shape is None else tf.convert_to_tensor(shape)
        )


class _RowGradient(tf.IndexedSlices):
    """`IndexedSlices` that support `/`, with which Keras unscales gradients."""

    def __truediv__(self, scale: Scalar) -> "_RowGradient":
        return _RowGradient(self.values / scale, self.indices, self.dense_shape)


def _joined_except_ids(step: tf.Tensor, parts: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns `tf.identity_n([step, *parts])`, except that ids on the host stay there.

    A GPU would send them back in each step. Their checks pass before the rest can be read.
    """
    on_host = [places.are_on_host(part) for part in parts]
    ids = [part for part, stays in zip(parts, on_host, strict=True) if stays]
    with tf.control_dependencies(ids):
        after_ids = tf.identity(step)
    others = [part for part, stays in zip(parts, on_host, strict=True) if not stays]
    step, _, *others = tf.identity_n([step, after_ids, *others])
    return [step, *((ids if stays else others).pop(0) for stays in on_host)]


def _merged(gradient: Gradient | None) -> Gradient | None:
    """Returns the gradient with the gradients of repeated rows summed."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    values, ids = row_ops.merge_rows(tf.cast(gradient.values, tf.float32), gradient.indices)
    return tf.IndexedSlices(values, ids, gradient.dense_shape)


def _values_of(gradient: Gradient | None) -> tf.Tensor | None:
    """Returns the values of a gradient, without the ids of the rows."""
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _with_values(gradient: Gradient | None, values: tf.Tensor | None) -> Gradient | None:
    """Returns a gradient with other values: sparse if `gradient` is, else dense."""
    if not isinstance(gradient, tf.IndexedSlices):
        return values
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)


_check_finite = inspect.unwrap(keras.optimizers.LossScaleOptimizer.check_finite)


@functools.wraps(_check_finite)
def _check_finite_by_rows(
    self: keras.optimizers.LossScaleOptimizer, grads: Sequence[Gradient | None]
) -> tf.Tensor:
    """The `check_finite` of a `LossScaleOptimizer`, which reads only the rows of gradients.

    Keras's method converts `IndexedSlices` to a boolean tensor of the variable's shape, and
    checks only the first replica. This method checks the gradients of all replicas.
    """
    inner = self.inner_optimizer
    parts = getattr(inner, "optimizers", [inner])  # of a MultiOptimizer
    if not any(isinstance(one, RowSparse) for one in parts):
        return _check_finite(self, grads)
    failed = ~_check_finite(self, [_values_of(one) for one in grads])
    return tf.equal(replicas.summed(tf.cast(failed, tf.float32)), 0)
