"""The row-sparse optimizers on JAX, against the NumPy formulas."""

import re

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

from tests.reference import optimizers as reference
from tf_largeout.jax import optimizers, rows
from tf_largeout.jax.optimizers import LazyAdam, RowwiseAdagrad

N = 40
PADDING = [-1, N, N + 3]
ADAM, ADAGRAD = (LazyAdam, reference.Adam), (RowwiseAdagrad, reference.RowwiseAdagrad)
SETTINGS = {
    "adam": (*ADAM, {}),
    "betas": (*ADAM, {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-3, "weight_decay": 0.3}),
    "no_momentum": (*ADAM, {"beta_1": 0.0, "row_step_offset": 0}),
    "row_momentum": (*ADAM, {"row_beta_1": 0.9}),
    "no_decay_of_skipped_rows": (
        *ADAM,
        {"row_beta_1": 0.9, "decay_skipped": False, "row_step_offset": 0},
    ),
    "adagrad": (*ADAGRAD, {}),
    "adagrad_arguments": (
        *ADAGRAD,
        {"initial_accumulator_value": 0.5, "epsilon": 1e-2, "weight_decay": 0.1},
    ),
}
each_setting = pytest.mark.parametrize("name", SETTINGS)
each_class = pytest.mark.parametrize("cls", [LazyAdam, RowwiseAdagrad])
rng = np.random.default_rng(0)


class Run:
    """Steps of one optimizer and one table. The gradient rows of a step are given."""

    def __init__(self, optimizer, start, dtype="float32", constraint=None):
        self.table = keras.Variable(start, dtype=dtype, name="table")
        self.table.has_row_gradients, self.table.constraint = True, constraint
        self.optimizer = optimizer
        self.optimizer.build([self.table])
        self._sparse = jax.jit(self._sparse_step, donate_argnums=0)
        self._dense = jax.jit(self._dense_step, donate_argnums=0)

    def _gradient(self, table, values, ids):
        def loss(table):
            with keras.StatelessScope([(self.table, table)]):
                return jnp.sum(rows.Table(self.table).lookup(ids) * values)

        return jax.grad(loss)(table)

    def _sparse_step(self, state, values, ids):
        gradient = self._gradient(state[0], values, ids)
        trained, state = self.optimizer.stateless_apply(state[1:], [gradient], state[:1])
        return [*trained, *state]

    def _dense_step(self, state, gradient):
        trained, state = self.optimizer.stateless_apply(state[1:], [gradient], state[:1])
        return [*trained, *state]

    @property
    def variables(self):
        return [self.table, *self.optimizer.variables]

    def step(self, values, ids, eagerly=False):
        values, ids = jnp.asarray(values), jnp.asarray(ids, jnp.int32)
        if eagerly:
            gradient = self._gradient(self.table.value, values, ids)
            self.optimizer.apply([gradient], [self.table])
        else:
            self._assign(self._sparse, values, ids)

    def dense_step(self, gradient):
        self._assign(self._dense, jnp.asarray(gradient))

    def _assign(self, step, *given):
        state = step([jnp.copy(v.value) for v in self.variables], *given)
        for variable, value in zip(self.variables, state, strict=True):
            variable.assign(value)

    def state(self):
        return [np.asarray(v.value) for v in self.variables]


def random_rows(dims=(5,)):
    """Gradient rows with repeated ids, padding, and without two thirds of the rows."""
    ids = np.concatenate([rng.integers(0, N, 60) // 3 * 3, PADDING])
    return rng.normal(size=(len(ids), *dims)).astype("float32"), ids


def random_table(dims=(5,)):
    return rng.normal(size=(N, *dims)).astype("float32")


def step_of_oracle(oracle, values, ids):
    is_row = (ids >= 0) & (ids < N)
    oracle.step(values[is_row], ids[is_row])


@each_setting
def test_sparse_and_dense_steps_equal_the_formula(name):
    cls, formula, arguments = SETTINGS[name]
    start = random_table()
    run, oracle = Run(cls(0.05, **arguments), start), formula(start, 0.05, **arguments)
    for is_dense in [False, False, True, False, True, False]:
        values, ids = random_rows()
        if is_dense:
            run.dense_step(values[:N])
            oracle.dense_step(values[:N])
        else:
            run.step(values, ids)
            step_of_oracle(oracle, values, ids)
    np.testing.assert_allclose(run.table, oracle.weights, rtol=1e-4, atol=2e-5)
    assert int(run.optimizer.iterations.value) == 6


@pytest.mark.parametrize("name", ["adam", "adagrad_arguments"])
@pytest.mark.parametrize("dims, eagerly", [((), False), ((2, 3), True)])
def test_rows_without_a_gradient_do_not_change(name, dims, eagerly):
    cls, formula, arguments = SETTINGS[name]
    start = random_table(dims)
    run, oracle = Run(cls(0.05, **arguments), start), formula(start, 0.05, **arguments)
    for _ in range(2):
        values, ids = random_rows(dims)
        run.step(values, ids, eagerly)
        step_of_oracle(oracle, values, ids)
    np.testing.assert_allclose(run.table, oracle.weights, rtol=1e-4, atol=2e-5)
    np.testing.assert_array_equal(run.table.numpy()[1::3], start[1::3])


def test_a_dense_gradient_is_bit_identical_to_keras():
    for options in [{"weight_decay": 0.1}, {"clipnorm": 0.5, "use_ema": True}]:
        results = []
        for cls in [LazyAdam, keras.optimizers.Adam]:
            variables = [keras.Variable(jnp.linspace(-1, 1, 20).reshape(4, 5), name="kernel")]
            variables.append(keras.Variable(2.0, name="scale"))
            optimizer = cls(0.05, **options)
            for step in range(3):
                grads = [jnp.sin(step + variables[0].value), jnp.cos(variables[1].value)]
                optimizer.apply(grads, variables)
            optimizer.finalize_variable_values(variables)
            results.append([v.numpy() for v in variables])
        for ours, theirs in zip(*results, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_variables_are_those_of_the_tensorflow_backend():
    run = Run(LazyAdam(), random_table())
    slots = [(v.path.split("/")[-1], v.shape) for v in run.optimizer.variables[2:]]
    first = [("table_momentum", (0, 5)), ("table_velocity", (N, 5))]
    assert slots == [*first, ("table_last_step", (N,))]
    run.step(*random_rows())
    assert run.optimizer.variables[2].shape == (0, 5)
    run.dense_step(random_table())
    assert run.optimizer.variables[2].shape == (N, 5)
    slot = Run(RowwiseAdagrad(), random_table()).optimizer.variables[2]
    assert (slot.name, slot.shape) == ("table_accumulator", (N,))


@pytest.mark.parametrize(
    "cls, options",
    [
        (LazyAdam, {"clipnorm": 0.7}),
        (LazyAdam, {"loss_scale_factor": 8}),
        (RowwiseAdagrad, {"clipvalue": 0.2}),
        (RowwiseAdagrad, {"global_clipnorm": 0.7}),
    ],
    ids=str,
)
def test_options_apply_to_merged_rows(cls, options):
    start, (values, ids) = random_table(), random_rows()
    dense = np.zeros_like(start)
    np.add.at(dense, ids[:60], values[:60])
    touched = np.flatnonzero(np.any(dense, axis=1))
    if cls is LazyAdam:  # one rule for dense and sparse gradients
        options = {"row_beta_1": 0.9, "row_step_offset": 0} | options
    sparse, full = Run(cls(0.05, **options), start), Run(cls(0.05, **options), start)
    for _ in range(2):
        sparse.step(values, ids)
        full.dense_step(dense)
    expected = full.table.numpy()[touched]
    np.testing.assert_allclose(sparse.table.numpy()[touched], expected, rtol=1e-5, atol=1e-6)


def test_a_schedule_and_a_callback_set_the_rate_of_each_step():
    (cls, formula), start = ADAGRAD, random_table()
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([0, 1], [0.1, 0.5, 0.05])
    runs = [Run(cls(schedule), start), Run(cls(1.0), start)]
    oracle = formula(start, 0.0)
    for rate in [0.1, 0.5, 0.05]:
        values, ids = random_rows()
        oracle.learning_rate = runs[1].optimizer.learning_rate = rate
        step_of_oracle(oracle, values, ids)
        for run in runs:
            run.step(values, ids)
    for run in runs:
        np.testing.assert_allclose(run.table, oracle.weights, rtol=1e-4, atol=2e-5)


def test_excluded_variables_do_not_decay():
    optimizer = RowwiseAdagrad(0.1, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["table"])
    excluded, run = Run(optimizer, random_table()), Run(RowwiseAdagrad(0.1), np.zeros([N, 5]))
    run.table.assign(excluded.table)
    for one in [excluded, run]:
        one.step(np.ones([2, 5], "float32"), [3, 3])
    np.testing.assert_array_equal(excluded.table, run.table)


@pytest.mark.parametrize(
    "cls, dtype, has_dense_step",
    [
        (LazyAdam, "bfloat16", True),
        (LazyAdam, "float32", False),
        (RowwiseAdagrad, "float32", True),
    ],
)
def test_a_resumed_run_is_bit_identical(cls, dtype, has_dense_step):
    whole = Run(cls(0.05), random_table(), dtype)
    whole.step(*random_rows())
    if has_dense_step:
        whole.dense_step(jnp.asarray(random_table(), dtype))
    store = {}
    whole.optimizer.save_own_variables(store)
    resumed = Run(cls.from_config(whole.optimizer.get_config()), whole.table.value, dtype)
    resumed.optimizer.load_own_variables(store)
    values, ids = random_rows()
    for run in [whole, resumed]:
        run.step(values, ids)
    for ours, theirs in zip(whole.state(), resumed.state(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_bfloat16_rows_follow_float32_rows_on_average():
    start, ids = np.full([N, 500], 1.0, "float32"), np.arange(0, N, 2)
    runs = {dtype: Run(LazyAdam(1e-3), start, dtype) for dtype in ["float32", "bfloat16"]}
    for _ in range(4):
        values = np.ones([len(ids), 500], "float32")
        for run in runs.values():
            run.step(values, ids)
    exact, rounded = (run.table.numpy().astype("float64") for run in runs.values())
    assert runs["bfloat16"].table.dtype == "bfloat16"
    assert {v.dtype for v in runs["bfloat16"].optimizer.variables[1:4]} <= {"float32", "int32"}
    np.testing.assert_array_equal(rounded[1::2], 1)
    # Values are multiples of 2^-8, so the standard error is below 2^-9 / 100 per step.
    np.testing.assert_allclose(rounded[::2].mean(), exact[::2].mean(), atol=8e-5)
    assert len(np.unique(rounded[::2])) > 1


@each_class
def test_an_empty_gradient_changes_only_the_iterations(cls):
    run = Run(cls(), random_table())
    before = run.state()
    run.step(np.zeros([0, 5], "float32"), np.zeros(0, int))
    run.step(np.ones([3, 5], "float32"), PADDING)
    for place, (old, new) in enumerate(zip(before, run.state(), strict=True)):
        np.testing.assert_array_equal(new, 2 if place == 1 else old)


@pytest.mark.parametrize("cls, bad", [(LazyAdam, "rows"), (RowwiseAdagrad, "kernel")])
def test_a_step_with_a_gradient_that_is_not_finite_changes_nothing(cls, bad):
    run, kernel = Run(cls(clipvalue=1.0), random_table()), keras.Variable(np.ones([2, 3]))
    optimizer = cls(clipvalue=1.0)
    optimizer.build([run.table, kernel])
    variables = [run.table, kernel, *optimizer.variables]
    for is_bad in [False, True]:
        before = [v.numpy() for v in variables]
        values, ids = random_rows()
        values[5, 2] = np.inf if is_bad and bad == "rows" else 1
        gradient = run._gradient(run.table.value, jnp.asarray(values), jnp.asarray(ids))
        other = jnp.ones([2, 3]).at[1, 1].set(np.nan if is_bad and bad == "kernel" else 1)
        optimizer.apply([gradient, other], [run.table, kernel])
    for old, variable in zip(before, variables, strict=True):
        np.testing.assert_array_equal(variable, old)


@pytest.mark.parametrize(
    "options, dtype, message",
    [
        (
            {"use_ema": True},
            "float32",
            "use_ema reads and writes every row of variable 'table'",
        ),
        ({"gradient_accumulation_steps": 2}, "float32", "batch that is 2 times as large"),
        ({"constraint": keras.constraints.NonNeg()}, "float32", "Remove the constraint"),
        ({}, "float16", "updates float32 variables by rows.*dtype float16"),
    ],
)
def test_options_that_need_all_rows_are_refused(options, dtype, message):
    constraint = options.get("constraint")
    options = {name: value for name, value in options.items() if name != "constraint"}
    with pytest.raises(ValueError, match=message):
        run = Run(LazyAdam(**options), random_table(), dtype, constraint)
        run.step(*random_rows(), eagerly=True)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: LazyAdam(amsgrad=True), "no amsgrad variant"),
        (lambda: LazyAdam(beta_2=1.0), "`beta_2` must be .* below 1"),
        (lambda: LazyAdam(row_beta_1=1.0), "`row_beta_1` must be"),
        (lambda: LazyAdam(row_step_offset=-1), "`row_step_offset` must be"),
        (lambda: LazyAdam(decay_skipped=1), "`decay_skipped` must be True or False"),
        (lambda: RowwiseAdagrad(lr=0.1), "Its name is `learning_rate`"),
        (lambda: RowwiseAdagrad(epsilon=-1.0), "`epsilon` must be"),
    ],
)
def test_wrong_arguments_raise_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_accumulation_of_dense_gradients_works_on_class_rows():
    run = Run(LazyAdam(0.1, gradient_accumulation_steps=2), random_table())
    other = Run(LazyAdam(0.1), run.table.value)
    first, second = random_table(), random_table()
    for gradient in [first, np.full_like(first, np.nan), second]:
        run.dense_step(gradient)
    other.dense_step((first + second) / 2)
    np.testing.assert_allclose(run.table, other.table, rtol=1e-6, atol=1e-6)


def test_lost_rows_give_one_warning_and_the_dense_result():
    run, other = (Run(RowwiseAdagrad(), np.ones([N, 5])) for _ in range(2))
    values, ids = random_rows()
    for _ in range(2):
        other.step(values, ids)
    with pytest.warns(UserWarning, match="dense gradient of 'table'.* one jitted") as record:
        for _ in range(2):
            gradient = run._gradient(run.table.value, jnp.asarray(values), jnp.asarray(ids))
            run.optimizer.apply([gradient * 1], [run.table])
    assert len(record) == 1
    np.testing.assert_allclose(run.table, other.table, rtol=1e-6)


def test_a_loss_scale_optimizer_is_refused_for_gradients_with_rows():
    optimizer = keras.optimizers.LossScaleOptimizer(LazyAdam())
    run = Run(optimizer.inner_optimizer, random_table())
    optimizer.build([run.table])
    state = [v.value for v in optimizer.variables]
    tables, state = optimizer.stateless_apply(state, [jnp.ones([N, 5])], [run.table.value])
    values, ids = random_rows()
    gradient = run._gradient(tables[0], jnp.asarray(values), jnp.asarray(ids))
    with pytest.raises(ValueError, match="LossScaleOptimizer divides the gradient of 'table'"):
        optimizer.stateless_apply(state, [gradient], tables)


def test_config_round_trip():
    for cls, keys in [
        (LazyAdam, {"beta_1", "beta_2", "decay_skipped", "row_beta_1", "row_step_offset"}),
        (RowwiseAdagrad, {"initial_accumulator_value"}),
    ]:
        optimizer = cls(keras.optimizers.schedules.CosineDecay(0.1, 10), clipnorm=2.0)
        config = optimizer.get_config()
        assert config.keys() - keras.optimizers.SGD().get_config().keys() == keys | {"epsilon"}
        saved = keras.saving.serialize_keras_object(optimizer)
        assert saved["registered_name"] == f"tf_largeout>{cls.__name__}"
        assert keras.saving.deserialize_keras_object(saved).get_config() == config


IDS = np.array([[0, 3, 3], [-1, 6, -9]], np.int32)  # 7 rows, so the last two are not rows


@pytest.mark.parametrize(
    "kind, policy",
    [
        ("Embedding", "float32"),
        ("Embedding", "bfloat16"),
        ("ReversibleEmbedding", "mixed_bfloat16"),
        ("lora", "float32"),
        ("int8", "float32"),
    ],
)
def test_embedding_layers_return_what_keras_returns(kind, policy):
    cls = getattr(keras.layers, kind, keras.layers.Embedding)
    layer = cls(6, 4, dtype=policy, lora_rank=2 if kind == "lora" else None)
    layer.build(None)
    if kind == "int8":
        layer.quantize("int8")
    LazyAdam().build(layer.trainable_variables)  # replaces Embedding.call
    replaced = keras.layers.Embedding.call
    found = layer(IDS)
    keras.layers.Embedding.call = optimizers._call_of_keras
    try:
        expected = layer(IDS)
    finally:
        keras.layers.Embedding.call = replaced
    assert found.dtype == expected.dtype
    found, expected = (np.asarray(one, np.float32) for one in [found, expected])
    np.testing.assert_array_equal(found, expected)


def embedding_model(num_rows, optimizer, layer=keras.layers.Embedding):
    encoder = [layer(num_rows, 8), keras.layers.GlobalAveragePooling1D()]
    model = keras.Sequential([keras.Input([3], dtype="int32"), *encoder, keras.layers.Dense(2)])
    model.compile(optimizer, "mse")
    return model


@each_class
def test_a_step_with_an_embedding_does_not_touch_all_rows(cls):
    model, data = embedding_model(5003, cls()), (np.ones([4, 3], int), np.ones([4, 2]))
    start = model.layers[0].embeddings.numpy()
    model.fit(*data, verbose=0)
    moved = np.flatnonzero((model.layers[0].embeddings.numpy() != start).any(axis=1))
    np.testing.assert_array_equal(moved, [1])
    state = model._get_jax_state(*[True] * 4)
    step = jax.jit(model.train_step, donate_argnums=0).lower(state, data).compile()
    large = re.findall(r"= [a-z0-9]+\[5003[\],].*? ([\w-]+)\(", step.as_text())
    allowed = {
        "dynamic-update-slice",
        "parameter",
        "scatter",
        "fusion",
        "get-tuple-element",
        "bitcast",
        "while",
    }
    assert set(large) <= allowed, set(large) - allowed


def test_embedding_training_equals_keras_on_all_rows():
    x, y = rng.integers(0, 9, [8, 3]), rng.normal(size=[8, 2])
    x[0] = np.arange(3)
    x[1:4] = np.arange(9).reshape(3, 3)  # each row has a gradient in each step
    start, results = None, []
    options = {"row_beta_1": 0.9, "row_step_offset": 0}
    for optimizer in [LazyAdam(0.01, **options), keras.optimizers.Adam(0.01)]:
        model = embedding_model(9, optimizer)
        start = start or model.get_weights()
        model.set_weights(start)
        model.fit(x, y, batch_size=8, epochs=5, verbose=0)
        results.append(model.get_weights())
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
