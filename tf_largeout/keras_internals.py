"""All uses of Keras and TensorFlow internals.

No public interface returns these values. The functions read the call stack, private attributes,
and the names of internal objects. All of these may change with any release. A docstring states
what its function relies on, unless the code shows it. tests/keras_internals_test.py tests each
function, so a change of Keras makes a test fail. Another test compares the private methods of
Keras that our classes override with the list in tests/source_tree.py.

Tested with Keras 3.12, 3.13, 3.14 and 3.15 on TensorFlow 2.21, and with Keras 3.15 on
TensorFlow 2.18, 2.19 and 2.20.
"""

import concurrent.futures
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

_TRAINING_OF_STEP = {"train_step": True, "test_step": False, "predict_step": False}
_METHODS_OF_KERAS = {
    name: getattr(keras.Model, name)
    for name in ("train_step", "compute_loss", "compute_metrics")
}
_CODE = {
    name: inspect.unwrap(getattr(keras.Model, name)).__code__
    for name in ("fit", "predict", "train_on_batch")
}
_VARIABLE_LISTS = ("_variables", "_trainable_variables")
_COLUMN_SLOTS = "_c"  # of Adafactor: one value per column of a matrix
_AVERAGES = "_model_variables_moving_average"

# The end of the message of a check in a graph. Without it, TensorFlow prints about 40 lines
# before the message: the call stack that created the check.
#
# Relies on two facts. The runtime adds "{{node NAME}}" to a message only if the message does
# not contain "{{node " yet. TensorFlow prints the stacks of the nodes that the message names,
# and does not recognise names that contain spaces.
NO_TRACE = "{{node of tf_largeout}}"


@dataclasses.dataclass(frozen=True, eq=False)  # so that `tf.function` accepts it
class RunningStep:
    """What of Keras calls a layer, a loss or a metric.

    `monitored` has the values that callbacks of the innermost `fit` monitor, each with the name
    of the class of the callback.
    """

    training: bool | None = None  # of the innermost step of a model; None outside of a step
    model: keras.Model | None = None  # of that step, if it is a `train_step` or `test_step`
    is_predict: bool = False  # a step of `keras.Model.predict`
    is_export: bool = False  # by `keras.Model.export` or a `keras.export.ExportArchive`
    is_compiled: bool = False  # XLA compiles the function that is traced
    is_jit_refused: bool = False  # `compile(jit_compile=True)`, which a layer does not support
    has_class_weight: bool = False  # the weights of the step are made from `class_weight`
    monitored: Mapping[str, str] = dataclasses.field(default_factory=dict)


def running_step() -> RunningStep:
    """Returns what of Keras is on the call stack. Only this function reads the call stack.

    It also tells whether XLA compiles the function that is traced, in Keras or in any other
    `tf.function(jit_compile=True)`: TensorFlow traces such a function in an XLA context.

    Keras leaves no other way: it passes `training=True` to the layers of a subclassed model
    only if the `call` of the model has an argument `training`. Otherwise, a sampled loss would
    silently become exact, and each step would take O(num_classes) time. It tells neither a
    layer nor a loss about the model and what it was compiled with, nor about the arguments of
    `fit`, nor that a model is exported.

    Relies on: `train_step`, `test_step` and `predict_step`, to which AutoGraph adds `tf__`;
    `__wrapped__`, which Keras's decorators set; `_compile_config`, the arguments of
    `compile`; the method `write_out` of archives; and the
    local variable `callbacks` of `fit`, a `CallbackList` of callbacks with a `monitor`.
    """
    found: dict[str, Any] = {}
    if tf.inside_function():
        found["is_compiled"] = tf.__internal__.get_enclosing_xla_context() is not None
    frame = inspect.currentframe()
    while frame is not None:
        name = frame.f_code.co_name.removeprefix("tf__")
        if name in _TRAINING_OF_STEP and "training" not in found:
            model = frame.f_locals.get("self")
            if isinstance(model, keras.Model):
                found["training"] = _TRAINING_OF_STEP[name]
                found["model"] = None if name == "predict_step" else model
                asked = getattr(getattr(model, "_compile_config", None), "config", {})
                found["is_jit_refused"] = bool(asked.get("jit_compile")) > model.jit_compile
        elif frame.f_code is _CODE["predict"]:
            found["is_predict"] = True
        elif name == "write_out":
            found["is_export"] = True
        elif frame.f_code in (_CODE["fit"], _CODE["train_on_batch"]):
            weights = frame.f_locals.get("class_weight")
            found.setdefault("has_class_weight", bool(weights))
            if name == "fit":
                found.setdefault("monitored", _monitored(frame.f_locals.get("callbacks")))
        frame = frame.f_back
    return RunningStep(**found)


def _monitored(callbacks: Any) -> dict[str, str]:
    return {
        one.monitor: type(one).__name__
        for one in getattr(callbacks, "callbacks", [])
        if isinstance(getattr(one, "monitor", None), str)
    }


def device_of_scope() -> str:
    """Returns the device of the innermost `tf.device` around a creation of variables, or "".

    Relies on the object that `tf.device` returns in eager mode, and on its context.
    """
    with tf.init_scope():
        return tf.device(None)._ctx.device_name or ""


def move_variable(variable: keras.Variable, device: str) -> None:
    """Moves a variable to another device. Functions that were traced before use the old one.

    Relies on `_value`, the `tf.Variable` of a `keras.Variable`.
    """

    def create() -> tf.Variable:
        old = variable.value
        with tf.device(device):
            name = old.name.partition(":")[0]
            return tf.Variable(old.numpy(), trainable=old.trainable, name=name)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:  # as in `prepare_first_step`
        variable._value = pool.submit(create).result()


def compiled_metrics(model: keras.Model) -> list[Any]:
    """Returns `metrics` and `weighted_metrics` as `compile` received them."""
    compiled = getattr(model, "_compile_metrics", None)
    metrics = getattr(compiled, "_user_metrics", None) or []
    return [metrics, getattr(compiled, "_user_weighted_metrics", None) or []]


def prepare_first_step(model: keras.Model) -> None:
    """Makes `fit` usable after a first step whose trace fails, for example by wrong labels.

    Keras creates the variables of the optimizer and of the metrics in the trace of the first
    step. If the trace fails, some are not initialized, and TensorFlow cannot call the function
    of the step again. So this function creates the variables of the optimizer outside of the
    trace, if all layers are built and the class of the model does not override `train_step`,
    which may train other variables. And it replaces the function of the step: its next call
    makes a new one if no step ran until then. Under a strategy it does nothing, because Keras
    creates all variables before the trace.

    Relies on: `train_step` passing the trainable weights of the model to its optimizer, the
    attribute `built` of optimizers, `fit` and `train_on_batch` calling `train_function`, the
    argument `force` of `make_train_function`, and the same as `all_layers` and `step_counter`.
    """
    optimizer, function = getattr(model, "optimizer", None), model.train_function
    if optimizer is None or tf.distribute.has_strategy():
        return
    if function is not None and tf.inside_function():
        counter = step_counter(optimizer)
        is_compiled = tf.__internal__.get_enclosing_xla_context() is not None
        with tf.init_scope():
            before = int(counter.value)

        def next_step(iterator: Any) -> Any:
            model.train_function = function
            has_failed = int(counter.value) == before
            if is_compiled:  # an invalid step does not count
                variables = [*model.metrics_variables, *optimizer.variables]
                has_failed = not all(one.value.is_initialized() for one in variables)
            if has_failed:
                model.make_train_function(force=True)
            return model.train_function(iterator)

        model.train_function = next_step
    if optimizer.built or type(model).train_step is not _METHODS_OF_KERAS["train_step"]:
        return
    for layer in model._flatten_layers():
        if not layer.built:
            return
    # Another thread has no graph, and none of the scopes of this layer: of variables, of names,
    # and of mixed precision.
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(optimizer.build, model.trainable_variables).result()


def compile_names(get: Callable[..., Any]) -> dict[str, type]:
    """Returns the classes that `compile` accepts by name; entries added to it are accepted too.

    `get` is `keras.losses.get` or `keras.metrics.get`. (`keras.optimizers.get` finds custom
    objects, which are public.) If its module has no table, `compile` does not find added names.
    """
    return get.__globals__.get("ALL_OBJECTS_DICT", {})


def replace_check_finite(function: Callable[..., tf.Tensor]) -> None:
    """Replaces the gradient check of `keras.optimizers.LossScaleOptimizer`.

    Under the policy mixed_float16, `Model.compile` wraps any optimizer in one, and the wrapped
    optimizer can neither change this check nor learn that it is wrapped. `functools.wraps` made
    `function` from `check_finite`, which `apply` calls after it has built that optimizer.
    """
    cls = keras.optimizers.LossScaleOptimizer
    if cls.check_finite is inspect.unwrap(function):
        cls.check_finite = function


def variable_of_handle(handle: tf.Tensor) -> tuple[tf.DType, tf.TensorShape] | None:
    """Returns the dtype and the shape of the variable of a handle, if it tells them."""
    data = getattr(handle, "_handle_data", None)
    if data is None or not data.is_set:
        return None
    known = data.shape_and_type[0]
    return tf.as_dtype(known.dtype), tf.TensorShape(known.shape)


def same_variable(handle: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Returns `handle`, which then tells the dtype and the shape of the variable of `other`."""
    handle._handle_data = other._handle_data
    return handle


def mask_of(tensor: tf.Tensor) -> tf.Tensor | None:
    """Returns the mask of a tensor, for example from `Embedding(mask_zero=True)`, or None."""
    return getattr(tensor, "_keras_mask", None)


def set_mask(losses: tf.Tensor, mask: tf.Tensor) -> None:
    """Sets the mask of a tensor of losses. `keras.losses.Loss` averages the unmasked ones."""
    losses._keras_mask = mask


def is_symbolic(tensor: Any) -> bool:
    """Returns whether Keras is inferring shapes, and `tensor` is a placeholder."""
    if isinstance(tensor, keras.KerasTensor):
        return True
    graph = None if tf.executing_eagerly() else getattr(tensor, "graph", None)
    return getattr(graph, "name", "").startswith("scratch_graph")


def operation_before(tensor: Any) -> keras.Operation | None:
    """Returns the layer or operation, such as `+`, that returned a symbolic tensor, or None."""
    return getattr(getattr(tensor, "_keras_history", None), "operation", None)


def input_of(tensor: Any) -> Any:
    """Returns the input of the layer call that returned a symbolic tensor."""
    history = tensor._keras_history
    return history.operation._inbound_nodes[history.node_index].input_tensors[0]


def output_layer(tensor: Any) -> keras.layers.Layer | None:
    """Returns the layer that computes an output of a model, also inside inner models."""
    layer = None
    while hasattr(tensor, "_keras_history"):
        history = tensor._keras_history
        layer = history.operation
        outputs = getattr(layer, "outputs", None) or []
        if not isinstance(layer, keras.Model) or history.tensor_index >= len(outputs):
            break
        tensor = outputs[history.tensor_index]
    return layer if isinstance(layer, keras.layers.Layer) else None


def has_standard_step(model: keras.Model) -> bool:
    """Returns whether a model computes its loss and its metrics as `keras.Model` does."""
    is_standard = all(
        getattr(type(model), name) is method for name, method in _METHODS_OF_KERAS.items()
    )
    return is_standard and hasattr(model, "_compile_metrics")


def is_input_of_a_layer(layer: keras.layers.Layer) -> bool:
    """Returns whether another layer takes the output of a layer, in any functional model."""
    return bool(getattr(layer, "_outbound_nodes", True))


def all_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns a model and all layers in it, at any depth, unlike `Model.layers`."""
    return model._flatten_layers()


def trainable_variables(optimizer: keras.optimizers.Optimizer) -> list[Any]:
    """Returns the variables that an optimizer was built on, in order; empty before."""
    return optimizer._trainable_variables


def own_variables(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """Returns the variables of an optimizer without those of the optimizers in it.

    (`variables` of a `LossScaleOptimizer` and of a `MultiOptimizer` has those too.)
    """
    return optimizer._variables


def slot_of(optimizer: keras.optimizers.Optimizer, name: str, variable: Any) -> Any:
    """Returns the slot of an optimizer that belongs to `variable`; None if it has none.

    The optimizer is built. `variable` may be the part of a variable on one replica. Relies on
    the lists `_momentums` and `_velocities` of Adam, and `_accumulators` of Adagrad, in the
    order of the trainable variables.
    """
    return getattr(optimizer, f"_{name}")[optimizer._get_variable_index(variable)]


def step_counter(optimizer: keras.optimizers.Optimizer) -> keras.Variable:
    """Returns the variable that counts the calls of `apply`.

    (`iterations` is a quotient, not a variable, where gradients are accumulated.)
    """
    return optimizer._iterations


class KnownVariable(NamedTuple):
    """What an optimizer knows about a variable that it updates."""

    position: int  # among the trainable variables
    of_model: Any  # the variable of which it is the part on one replica
    decays: bool  # whether the weight decay applies to it


def known_variable(optimizer: keras.optimizers.Optimizer, variable: Any) -> KnownVariable:
    """Returns what an optimizer knows about the variable that `update_step` was given.

    Relies on `_use_weight_decay` applying `exclude_from_weight_decay`.
    """
    position = optimizer._get_variable_index(variable)
    decays = optimizer.weight_decay is not None and optimizer._use_weight_decay(variable)
    return KnownVariable(position, optimizer._trainable_variables[position], decays)


def slot_lists(optimizer: keras.optimizers.Optimizer) -> Iterator[tuple[list[Any], bool]]:
    """Yields all slots of a built optimizer whose first axis may be that of their variables.

    Each list has one slot, or None, per trainable variable, and comes with whether the slots
    are moving averages of the variables. Relies on the order of `_trainable_variables`.
    """
    for name, value in vars(optimizer).items():
        if name in _VARIABLE_LISTS or name == _COLUMN_SLOTS or not isinstance(value, list):
            continue
        if len(value) == len(optimizer._trainable_variables):
            yield value, name == _AVERAGES


def sharded_variable(variables: Sequence[tf.Variable], name: str) -> Any:
    """Returns an object that makes `tf.train.Checkpoint` save variables as slices of a table.

    Its class is that of the variables of `tf.distribute.ParameterServerStrategy`.
    """
    return tf.__internal__.distribute.ShardedVariable(variables, name)


class _RestoresOnDemand:
    """Restores slots on demand from checkpoints, for any number of shards.

    A checkpoint has an array of all rows, or without rows. With several shards, the array has
    no rows, and the rows are a child, `rows`, if there are any. Relies on TensorFlow looking
    up all children in a checkpoint before it restores values.
    """

    _restores_rows = False
    assign: Callable[..., Any]
    create_rows: Callable[[], None]
    saved_rows: Callable[[], Any]

    def _lookup_dependency(self, name: str, cached_dependencies: Any = None) -> Any:
        if name != "rows":
            return super()._lookup_dependency(name, cached_dependencies)  # type: ignore[misc]
        self._restores_rows = True
        self.create_rows()
        return self.saved_rows()

    def _restore_from_tensors(self, restored_tensors: dict[str, tf.Tensor]) -> None:
        if self._restores_rows:
            self._restores_rows = False
            return

        def assign(values: tf.Tensor) -> None:
            self.assign(values)

        values = restored_tensors["VARIABLE_VALUE"]
        if tf.executing_eagerly():
            assign(values)
        else:  # a function, with variables on several machines
            with tf.device(None), tf.device("CPU:0"):
                tf.py_function(assign, [values], [])


class SlotOnDemand(_RestoresOnDemand, keras.Variable):
    """A slot of zeros `[num_rows, ...]` of an optimizer, without rows until it needs them.

    Without rows, its shape is `[0, ...]`, in memory and in files. `create_rows` creates them,
    and so do values other than 0 in a file. Relies on `_initialize` replacing the variable.
    """

    num_rows: int

    def create_rows(self) -> None:
        """Creates the rows, also while a function is traced, if there are none."""
        if not self.shape[0]:
            self._shape = (self.num_rows, *self.shape[1:])
            with tf.init_scope(), tf.device(self.value.device):
                self._initialize(tf.zeros(self.shape, self.dtype))

    def assign(self, value: Any) -> tf.Tensor:
        """Sets all rows. A value without rows means zeros; zeros create no rows."""
        value = tf.convert_to_tensor(value, self.dtype)
        if not self.shape[0]:
            fits = value.shape[1:] == self.shape[1:] and value.shape[0] in (0, self.num_rows)
            if fits and tf.executing_eagerly() and not tf.reduce_any(value != 0):
                return value
            self.create_rows()
        if value.shape[0] == 0:
            value = tf.zeros(self.shape, self.dtype)
        return super().assign(value)

    def saved_rows(self) -> tf.Variable:
        """Returns the variable with the rows."""
        return self.value


def add_slot_on_demand(
    optimizer: keras.optimizers.Optimizer, num_rows: int, has_rows: bool, **options: Any
) -> SlotOnDemand:
    """Adds a slot to an optimizer; `options` are those of `keras.Variable`."""
    shape = (num_rows if has_rows else 0, *options.pop("shape")[1:])
    with keras.name_scope(optimizer.name):
        slot = SlotOnDemand(shape=shape, trainable=False, **options)
    slot.num_rows = num_rows
    optimizer._track_variable(slot)
    return slot


class SlotsOnDemand(_RestoresOnDemand, tf.Module):
    """The `SlotOnDemand`s of all shards of a table (`class_rows.ShardedTable`), to be saved."""

    def __init__(self, table: Any) -> None:
        super().__init__()
        self._table = table
        self.assign, self.create_rows = table.assign, table.create_rows
        self.__dict__["_rows"] = _SavedRows(table)  # not tracked

    def saved_rows(self) -> Any:
        """Returns the object with the rows, which a checkpoint has if there are rows."""
        return self._rows

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> Any:
        children = super()._trackable_children(save_type, **kwargs)
        return {**children, "rows": self._rows} if self._table.shape[0] else children

    def _serialize_to_tensors(self) -> dict[str, tf.Tensor]:
        return {"VARIABLE_VALUE": tf.zeros((0, *self._table.shape[1:]), self._table.dtype)}


class _SavedRows(type(tf.__internal__.tracking.wrap([]))):  # type: ignore[misc]
    """The rows of the shards of a table, which TensorFlow saves in slices.

    It is an empty list, because the checks of a restored checkpoint ignore these.
    """

    def __init__(self, table: Any) -> None:
        super().__init__([])
        self._table = table

    def _gather_saveables_for_checkpoint(self) -> Any:
        values = [shard.value for shard in self._table.shards]
        return sharded_variable(values, self._table.name)._gather_saveables_for_checkpoint()
