"""Each use of Keras and TensorFlow internals: what `keras_internals` says that it relies on."""

import functools
import importlib
import inspect
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.slow import slow_but
from tests.source_tree import KERAS_OVERRIDES, name, python_files
from tf_largeout import keras_internals

X = np.ones([4, 3], np.float32)


class Recorder(keras.layers.Layer):
    """Returns its input; records what a function returns at each call."""

    def __init__(self, function):
        super().__init__()
        self.function, self.found = function, []

    def call(self, x):
        self.found.append(self.function(x))
        return x


def recording_model(function, **compile_arguments):
    recorder = Recorder(function)
    model = keras.Sequential([keras.Input([3]), recorder, keras.layers.Dense(1)])
    model.compile("sgd", "mse", **compile_arguments)
    recorder.found.clear()
    return model, recorder.found


# Methods of Keras, what a layer in them finds, as `training`, whether a model is known, and the
# fields that are not as in `RunningStep()`.
STOP = keras.callbacks.EarlyStopping("loss")
RUNNING = {
    "fit": (lambda model, x, y: model.fit(x, y, verbose=0), (True, True), {}),
    "fit, class_weight": (
        lambda model, x, y: model.fit(x, y, class_weight={1: 2.0}, verbose=0),
        (True, True),
        {"has_class_weight": True},
    ),
    "fit, callbacks": (
        lambda model, x, y: model.fit(
            x, y, callbacks=[STOP, keras.callbacks.TerminateOnNaN()], verbose=0
        ),
        (True, True),
        {"monitored": {"loss": "EarlyStopping"}},
    ),
    "train_on_batch": (
        lambda model, x, y: model.train_on_batch(x, y, class_weight={1: 2.0}),
        (True, True),
        {"has_class_weight": True},
    ),
    "evaluate": (lambda model, x, y: model.evaluate(x, y, verbose=0), (False, True), {}),
    "compiled by XLA": (
        lambda model, x, y: _compiled(model).fit(x, y, verbose=0),
        (True, True),
        {"is_compiled": True},
    ),
    "refused by a layer": (
        lambda model, x, y: _refusing(model).fit(x, y, verbose=0),
        (True, True),
        {"is_jit_refused": True},
    ),
    "predict": (
        lambda model, x, y: model.predict(x, verbose=0),
        (False, False),
        {"is_predict": True},
    ),
    "predict_on_batch": (lambda model, x, y: model.predict_on_batch(x), (False, False), {}),
    "call": (lambda model, x, y: model(x), (None, False), {}),
}


def _compiled(model):
    model.compile("sgd", "mse", jit_compile=True)
    return model


def _refusing(model):
    model.layers[-1].supports_jit = False
    with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
        return _compiled(model)


@pytest.mark.parametrize("eager", slow_but([False], [False, True]))
@pytest.mark.parametrize("name", RUNNING)
def test_a_layer_finds_the_method_that_calls_it(name, eager):
    method, (training, has_model), others = RUNNING[name]
    model, found = recording_model(lambda x: keras_internals.running_step(), run_eagerly=eager)
    method(model, X, X[:, :1])
    expected = keras_internals.RunningStep(training, model if has_model else None, **others)
    assert found and all(vars(one) == vars(expected) for one in found)


def test_a_function_that_xla_compiles_is_found_without_keras():
    found = []

    def function(x):
        found.append(keras_internals.running_step().is_compiled)
        return tf.while_loop(lambda x: x < 1, body, [x])

    def body(x):
        found.append(keras_internals.running_step().is_compiled)
        return x + 1

    for jit_compile in (True, False):
        tf.function(function, jit_compile=jit_compile, autograph=False)(0)
    assert found == [True, True, False, False]


@pytest.mark.parametrize("with_archive", [False, True])
def test_a_layer_finds_an_export(with_archive, tmp_path):
    model, found = recording_model(lambda x: keras_internals.running_step())
    if with_archive:
        archive = keras.export.ExportArchive()
        archive.add_endpoint("serve", model.__call__, [tf.TensorSpec([None, 3])])
        archive.write_out(tmp_path, verbose=False)
    else:
        model.export(tmp_path, verbose=False)
    assert vars(keras_internals.RunningStep(is_export=True)) in map(vars, found)


def test_the_error_of_a_check_has_no_trace_of_the_graph():
    def check(x):
        message = ["Too large:", tf.reduce_max(x), keras_internals.NO_TRACE]
        tf.debugging.Assert(~tf.reduce_any(x >= 2), message)
        return tf.debugging.check_numerics(x, f"NaN {keras_internals.NO_TRACE}")

    model, _ = recording_model(check)
    for x, message in ((2 * X, "assertion failed: .Too large:. .2. ."), (np.nan * X, "NaN ")):
        expected = rf"^Graph execution error:\n\n{message}[^\n]*\n[^\n]*$"
        with pytest.raises(tf.errors.InvalidArgumentError, match=expected):
            model.fit(x, X[:, :1], verbose=0)


def test_the_metrics_of_a_model_are_those_that_compile_received():
    model, _ = recording_model(lambda x: None, metrics=["mae"], weighted_metrics=[])
    assert keras_internals.compiled_metrics(model) == [["mae"], []]
    assert keras_internals.compiled_metrics(keras.Sequential()) == [[], []]


def test_a_step_that_autograph_has_converted_is_found():
    model, found = recording_model(lambda x: keras_internals.running_step().training)

    class Model(keras.Model):
        def train_step(self, data):
            return model(data)

    tf.function(Model().train_step)(X)
    assert found == [True]


@pytest.mark.parametrize("own_step", [False, True])
def test_the_optimizer_of_a_first_step_is_built_before_its_trace(own_step):
    """So a step whose first trace fails can be traced again."""

    class Model(keras.Model):
        def train_step(self, data):
            return super().train_step(data)

    found = []

    def loss(y, outputs):
        keras_internals.prepare_first_step(model)
        found.append(model.optimizer.built)
        if len(found) == 1:
            raise ValueError("in the trace")
        return tf.reduce_mean(outputs)

    inputs = keras.Input([3])
    outputs = keras.layers.Dense(1)(inputs)
    model = (Model if own_step else keras.Model)(inputs, outputs)
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()), loss)
    with pytest.raises(ValueError, match="in the trace"):
        model.fit(X, X[:, :1], verbose=0)
    assert found == [not own_step]
    if not own_step:
        model.fit(X, X[:, :1], verbose=0)
        assert model.optimizer.iterations == 1


@pytest.mark.parametrize("module", [keras.losses, keras.metrics], ids=["losses", "metrics"])
def test_compile_finds_names_that_are_added(module, monkeypatch):
    class Other(keras.losses.Loss if module is keras.losses else keras.metrics.Metric):
        pass

    names = keras_internals.compile_names(module.get)
    assert "mean_squared_error" in names
    monkeypatch.setitem(names, "other_name", Other)
    assert type(module.get("other_name")) is Other


def test_a_loss_scale_optimizer_calls_the_check_that_replaced_its_own(monkeypatch):
    calls, cls = [], keras.optimizers.LossScaleOptimizer
    monkeypatch.setattr(cls, "check_finite", inspect.unwrap(cls.check_finite))

    @functools.wraps(cls.check_finite)
    def check(self, grads):
        calls.append(grads)
        return tf.constant(True)

    for _ in range(2):
        keras_internals.replace_check_finite(check)
    optimizer, variable = cls(keras.optimizers.SGD()), keras.Variable(X)
    optimizer.apply([tf.ones_like(X)], [variable])
    assert len(calls) == 1


@pytest.mark.parametrize("in_function", [False, True])
def test_a_layer_gives_a_mask(in_function):
    embedding = keras.layers.Embedding(3, 2, mask_zero=True)

    def mask(ids):
        return keras_internals.mask_of(embedding(ids))

    found = (tf.function(mask) if in_function else mask)(tf.constant([[0, 1, 2]]))
    np.testing.assert_array_equal(found, [[False, True, True]])
    assert keras_internals.mask_of(tf.constant(X)) is None


@pytest.mark.parametrize("in_function", [False, True])
def test_a_loss_divides_by_the_number_of_unmasked_examples(in_function):
    class First(keras.losses.Loss):
        def call(self, y_true, y_pred):
            return y_pred

    def mean():
        losses = tf.identity([1.0, 2.0, 6.0])
        keras_internals.set_mask(losses, tf.constant([True, True, False]))
        return First()(losses, losses)

    assert float((tf.function(mean) if in_function else mean)()) == 1.5


def test_a_tensor_is_symbolic_where_keras_infers_shapes_alone():
    recorder = Recorder(keras_internals.is_symbolic)
    inputs = keras.Input([3])
    recorder(inputs)
    assert recorder.found == [True] and keras_internals.is_symbolic(inputs)
    recorder.found.clear()
    recorder(X)
    tf.function(recorder)(X)
    assert recorder.found == [False, False]


@pytest.mark.slow
def test_under_a_strategy_a_loss_gets_symbolic_predictions_before_the_first_step():
    found = []

    def loss(y_true, y_pred):
        found.append(keras_internals.is_symbolic(y_pred))
        return tf.reduce_sum(y_pred)

    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", loss)
    model.fit(X, X[:, :1], verbose=0)
    assert found[0] and not found[-1]


def test_the_operation_before_a_symbolic_tensor():
    dense, inputs = keras.layers.Dense(1), keras.Input([3])
    assert keras_internals.operation_before(dense(inputs)) is dense
    assert keras_internals.operation_before(tf.constant(X)) is None


def test_the_input_of_the_layer_that_returned_a_symbolic_tensor():
    first, second = keras.Input([3]), keras.Input([3])
    dense = keras.layers.Dense(2)
    outputs = [dense(first), dense(second)]
    assert [keras_internals.input_of(one) for one in outputs] == [first, second]


def test_the_layer_of_an_output_of_an_inner_model():
    inputs, layers = keras.Input([3]), [keras.layers.Dense(1) for _ in range(2)]
    inner = keras.Sequential([keras.Model(inputs, [one(inputs) for one in layers])])
    assert [keras_internals.output_layer(one) for one in inner(inputs)] == layers
    assert keras_internals.output_layer(tf.constant(X)) is None


def test_all_layers_are_found_at_any_depth():
    class Holder(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.parts = [keras.layers.Dense(1)]

        def call(self, x):
            return self.parts[0](x)

    holder = Holder()
    inner = keras.Sequential([keras.Input([3]), holder])
    model = keras.Sequential([inner])
    found = keras_internals.all_layers(model)
    assert {model, inner, holder, *holder.parts} <= set(found)
    assert len(found) == len(set(found))


def built(optimizer):
    variables = [keras.Variable(np.ones([5, 2], np.float32), name=one) for one in "ab"]
    optimizer.build(variables)
    return optimizer, variables


@pytest.mark.parametrize(
    "optimizer, names",
    [
        (lambda: keras.optimizers.Adam(), ["momentums", "velocities"]),
        (lambda: keras.optimizers.Adagrad(), ["accumulators"]),
    ],
    ids=["Adam", "Adagrad"],
)
def test_each_slot_belongs_to_one_variable(optimizer, names):
    optimizer, variables = built(optimizer())
    assert keras_internals.trainable_variables(optimizer) == variables
    slots = [keras_internals.slot_of(optimizer, one, variables[1]) for one in names]
    assert all("b_" in slot.path for slot in slots)
    assert [id(slots[1]) for slots, _ in keras_internals.slot_lists(optimizer)] == [
        id(slot) for slot in slots
    ]
    known = keras_internals.known_variable(optimizer, variables[1].value)
    assert known.position == 1 and known.of_model is variables[1]


def test_the_momentums_of_sgd_are_in_the_order_of_the_variables():
    optimizer, variables = built(keras.optimizers.SGD(momentum=0.9))
    position = keras_internals.known_variable(optimizer, variables[1]).position
    assert "b_" in optimizer.momentums[position].path


def test_the_averages_of_variables_are_known_among_the_slots():
    optimizer, _ = built(keras.optimizers.SGD(use_ema=True))
    (averages,) = [one for one, known in keras_internals.slot_lists(optimizer) if known]
    assert [tuple(slot.shape) for slot in averages] == [(5, 2)] * 2


def test_slots_with_a_value_per_column_are_left_out():
    optimizer, _ = built(keras.optimizers.Adafactor())
    shapes = [tuple(slots[0].shape) for slots, _ in keras_internals.slot_lists(optimizer)]
    assert (5,) in shapes and (2,) not in shapes


def test_the_step_counter_counts_accumulated_gradients_too():
    optimizer, variables = built(keras.optimizers.SGD(gradient_accumulation_steps=2))
    optimizer.apply([tf.ones([5, 2])] * 2, variables)
    assert int(keras_internals.step_counter(optimizer)) == 1 and int(optimizer.iterations) == 0


def test_an_outer_optimizer_has_variables_of_its_own():
    inner = keras.optimizers.Adam()
    outer, _ = built(keras.optimizers.LossScaleOptimizer(inner))
    own = set(map(id, keras_internals.own_variables(outer)))
    assert own and not own & set(map(id, keras_internals.own_variables(inner)))
    assert set(map(id, outer.variables)) > own


def test_variables_are_excluded_from_weight_decay():
    optimizer = keras.optimizers.AdamW(weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["b"])
    optimizer, variables = built(optimizer)
    known = [keras_internals.known_variable(optimizer, one) for one in variables]
    assert [one.decays for one in known] == [True, False]
    optimizer, variables = built(keras.optimizers.SGD())
    assert not keras_internals.known_variable(optimizer, variables[0]).decays


def test_a_checkpoint_stores_several_variables_as_one_table(tmp_path):
    parts = [tf.Variable(X), tf.Variable(2 * X[:2])]
    holder = tf.Module()
    holder.table = keras_internals.sharded_variable(parts, "table")
    path = tf.train.Checkpoint(holder=holder).save(tmp_path / "checkpoint")
    saved = tf.train.load_checkpoint(path)
    (key,) = [one for one in saved.get_variable_to_shape_map() if "table" in one]
    np.testing.assert_array_equal(saved.get_tensor(key), np.concatenate([X, 2 * X[:2]]))


def test_a_slot_on_demand_is_saved_and_restored_with_and_without_rows(tmp_path):
    slots = []
    for _ in range(2):
        optimizer, _ = built(keras.optimizers.SGD())
        options = {"shape": (5, 2), "initializer": "zeros", "dtype": "float32", "name": "slot"}
        slots.append(keras_internals.add_slot_on_demand(optimizer, 5, False, **options))
        assert optimizer.variables[-1] is slots[-1] and tuple(slots[-1].shape) == (0, 2)
    before, after = (tf.train.Checkpoint(slot=one) for one in slots)
    empty = before.write(str(tmp_path / "empty"))
    slots[0].assign(np.ones([5, 2]))
    after.read(before.write(str(tmp_path / "full"))).assert_consumed()
    np.testing.assert_array_equal(slots[1], np.ones([5, 2]))
    after.read(empty).assert_consumed()
    np.testing.assert_array_equal(slots[1], np.zeros([5, 2]))


def test_a_handle_tells_the_dtype_and_the_shape_of_its_variable():
    rows = tf.Variable(tf.zeros([3, 2], tf.bfloat16))

    @tf.function
    def in_graph():
        (copied,) = tf.identity_n([rows.handle])
        assert keras_internals.variable_of_handle(copied) is None
        for handle in (rows.handle, keras_internals.same_variable(copied, rows.handle)):
            assert keras_internals.variable_of_handle(handle) == (tf.bfloat16, [3, 2])

    in_graph()


def test_the_list_of_overridden_methods_is_complete():
    found = {}
    for path in python_files():
        module = name(path).removesuffix(".py").replace("/", ".")
        if module.split(".")[1] not in ("layers", "optimizers", "callbacks"):
            continue  # no other classes inherit from classes of Keras with private methods
        for cls in vars(importlib.import_module(module)).values():
            if inspect.isclass(cls) and cls.__module__ == module:
                found.setdefault(name(path), set()).update(_overridden(cls))
    # Modules for JAX cannot be imported here.
    listed = {path: names for path, names in KERAS_OVERRIDES.items() if "/jax/" not in path}
    assert {path: names for path, names in found.items() if names} == listed


def _overridden(cls):
    """The private functions of a class that Keras or TensorFlow define in a base of it."""
    foreign = [
        one for one in cls.__mro__ if one.__module__.startswith(("keras.", "tensorflow."))
    ]
    for private, value in vars(cls).items():
        if not re.match("_[a-z]", private) or not inspect.isroutine(value):
            continue
        original = next((vars(one)[private] for one in foreign if private in vars(one)), None)
        if original is not None:
            assert _parameters(value) == _parameters(original), f"{cls.__name__}.{private}"
            yield private


def _parameters(function):
    return list(inspect.signature(function).parameters)


class _OwnLoss(keras.Sequential):
    def compute_loss(self, *args, **kwargs):
        return super().compute_loss(*args, **kwargs)


def test_a_model_with_a_method_of_its_own_has_no_standard_step():
    assert keras_internals.has_standard_step(keras.Sequential())
    assert not keras_internals.has_standard_step(_OwnLoss())


def test_a_layer_whose_output_another_layer_takes_is_its_input():
    first, last = keras.layers.Dense(2), keras.layers.Dense(2)
    keras.Sequential([keras.Input([3]), first, last])
    assert keras_internals.is_input_of_a_layer(first)
    assert not keras_internals.is_input_of_a_layer(last)


def test_the_device_of_a_scope_is_known():
    assert keras_internals.device_of_scope() == ""
    with tf.device("CPU:1"):
        assert keras_internals.device_of_scope().endswith("CPU:1")

        @tf.function
        def step():
            assert keras_internals.device_of_scope().endswith("CPU:1")

        step()
    assert keras_internals.device_of_scope() == ""


def test_a_variable_moves_to_another_device():
    layer = keras.layers.Layer()
    weight = layer.add_weight(shape=[2], initializer="ones", name="counter", trainable=False)

    @tf.function
    def step():
        keras_internals.move_variable(weight, "CPU:1")
        weight.assign(weight + 1)

    step()
    assert weight.value.device.endswith("CPU:1")
    assert layer.get_weights()[0].tolist() == [2, 2]
    assert layer.non_trainable_variables == [weight]
    assert weight.value.name == "layer/counter:0"
