"""The optimizers in Keras's training loop."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import replicas
from tests.harness import multi_optimizer
from tests.optimizers.table import CLASSES, OPTIMIZERS, random_slices, state
from tests.slow import slow_but
from tf_largeout import optimizers

NUM_TOKENS = 5_003  # no other dimension has this size


@pytest.fixture(params=CLASSES)
def member(request):
    return OPTIMIZERS[request.param]


# For tests that do not depend on the optimizer.
only_adam = pytest.mark.parametrize("member", slow_but(["adam"], CLASSES), indirect=True)


def make_model():
    return keras.Sequential(
        [
            keras.Input([3], dtype="int32"),
            keras.layers.Embedding(NUM_TOKENS, 4),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )


def data(batches=4):
    rng = np.random.default_rng(21)
    x = rng.integers(0, 40, [8 * batches, 3])
    return x, (x.sum(1, keepdims=True) > 60).astype("float32")


def compiled(optimizer, **options):
    keras.utils.set_random_seed(3)
    model = make_model()
    model.compile(optimizer, loss="mse", **options)
    model.optimizer.build(model.trainable_variables)  # avoids a second trace
    return model


@pytest.mark.slow
@only_adam
def test_fit_learns_the_same_in_each_execution_mode(member):
    results = []
    for options in ({}, {"steps_per_execution": 2}, {"run_eagerly": True}):
        model = compiled(member.make(), **options)
        fitted = model.fit(*data(), batch_size=8, epochs=2, shuffle=False, verbose=0)
        assert fitted.history["loss"][1] < fitted.history["loss"][0]
        results.append(model.get_weights())
    for other in results[1:]:
        for ours, theirs in zip(results[0], other, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "member", slow_but(["adam", "rowwise_adagrad"], CLASSES), indirect=True
)
def test_checkpoint_restores_weights_and_slots(member, tmp_path):
    model = compiled(member.make(), run_eagerly=True)
    model.fit(*data(batches=1), batch_size=8, verbose=0)
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    other = compiled(member.make())
    other.optimizer.build(other.trainable_variables)
    tf.train.Checkpoint(model=other).restore(path).expect_partial()
    for old, new in zip(state(model.optimizer), state(other.optimizer), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    "member, policy",
    slow_but(
        [("adam", "mixed_float16")],
        itertools.product(CLASSES, ["mixed_bfloat16", "mixed_float16"]),
    ),
    indirect=["member"],
)
def test_mixed_precision_trains(member, policy):
    keras.config.set_dtype_policy(policy)
    try:
        model = compiled(member.make())
        history = model.fit(*data(), batch_size=8, epochs=3, verbose=0).history["loss"]
    finally:
        keras.config.set_dtype_policy("float32")
    assert history[-1] < history[0]


@pytest.mark.slow  # integration/replicas_test.py has one short case
@pytest.mark.parametrize(
    "member", slow_but(["rowwise_adagrad"], ["adam", "rowwise_adagrad"]), indirect=True
)
def test_two_replicas_train_as_one(member):
    single = compiled(member.make())
    single.fit(*data(), batch_size=8, shuffle=False, verbose=0)
    strategy = replicas.two_replicas()
    with strategy.scope():
        mirrored = compiled(member.make())
    mirrored.fit(*data(), batch_size=8, shuffle=False, verbose=0)
    for ours, theirs in zip(single.get_weights(), mirrored.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    for variable in mirrored.trainable_variables:
        copies = strategy.experimental_local_results(variable.value)
        np.testing.assert_array_equal(copies[0], copies[1])


@only_adam
def test_multi_optimizer_trains_the_table_with_ours(member):
    inner = member.make()
    model = compiled(multi_optimizer(keras.optimizers.AdamW(1e-3), {".*embeddings": inner}))
    before = model.get_weights()
    model.fit(*data(), batch_size=8, verbose=0)
    assert int(inner.iterations.numpy()) == 4
    for old, new in zip(before, model.get_weights(), strict=True):
        assert not np.array_equal(old, new)


OPTIONS = [{}, {"clipnorm": 1.0}, {"global_clipnorm": 1.0}, {"loss_scale_factor": 2.0}]


@pytest.mark.parametrize(
    "member, options, loss_scaling",
    slow_but(
        [
            *(("adam", options, False) for options in OPTIONS),
            *((name, {}, True) for name in CLASSES),
        ],
        itertools.product(CLASSES, OPTIONS, [False, True]),
    ),
    indirect=["member"],
    ids=str,
)
def test_a_sparse_step_creates_no_tensor_of_all_rows(member, options, loss_scaling):
    optimizer = member.make(**options)
    if loss_scaling:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    assert not nodes_over_all_rows(optimizer)


def test_tensors_of_all_rows_are_detected():
    adam = keras.optimizers.Adam(1e-3)
    assert "ReadVariableOp" in nodes_over_all_rows(adam)
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1e-3))
    assert "TensorScatterUpdate" in nodes_over_all_rows(scaled)


def nodes_over_all_rows(optimizer):
    """The ops of a sparse step, including its branches, that have an output with all rows."""
    variable = keras.Variable(tf.zeros([NUM_TOKENS, 4]))
    optimizer.build([variable])

    @tf.function
    def step(values, ids):
        dense_shape = tf.constant([NUM_TOKENS, 4])
        optimizer.apply([tf.IndexedSlices(values, ids, dense_shape)], [variable])

    function = step.get_concrete_function(tf.ones([3, 4]), tf.constant([1, 7, 1]))
    graph = function.graph.as_graph_def(add_shapes=True)
    nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
    return [node.op for node in nodes if any(map(has_all_rows, output_shapes(node)))]


def output_shapes(node):
    if node.op == "VarHandleOp":
        return []
    return node.attr["_output_shapes"].list.shape


def has_all_rows(shape):
    return NUM_TOKENS in [dimension.size for dimension in shape.dim]


def failing_step(model, optimizer, fails):
    """A traced step in which computing the last gradient fails."""

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x))
        gradients = tape.gradient(loss, model.trainable_variables)
        wrong = tf.debugging.check_numerics(gradients[-1] / fails, "gradient")
        optimizer.apply([*gradients[:-1], wrong], model.trainable_variables)

    step(tf.zeros([8, 3], tf.int32))


@only_adam
def test_a_step_that_fails_in_a_gradient_changes_nothing(member):
    model, optimizer = make_model(), member.make()
    optimizer.build(model.trainable_variables)
    before = state(optimizer, *model.trainable_variables)
    with pytest.raises(tf.errors.InvalidArgumentError, match="gradient"):
        failing_step(model, optimizer, tf.constant(0.0))
    for old, new in zip(before, state(optimizer, *model.trainable_variables), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    "bad, graph",
    slow_but(
        [(-1, False), (40, True), (2**40, False)],
        itertools.product([-1, 40, 2**40], [False, True]),
    ),
)
def test_a_step_with_an_id_out_of_range_changes_nothing(member, bad, graph):
    rng = np.random.default_rng(22)
    variables = [keras.Variable(tf.ones([40, 5])), keras.Variable(tf.ones([40, 5]))]
    optimizer = member.make()
    optimizer.build(variables)
    before = state(optimizer, *variables)
    slices = random_slices(rng)
    ids = tf.concat([slices.indices[:-1], tf.constant([bad], tf.int64)], 0)
    wrong = tf.IndexedSlices(slices.values, ids, slices.dense_shape)
    apply = lambda: optimizer.apply([slices, wrong], variables)  # noqa: E731
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{bad} is not a row"):
        (tf.function(apply) if graph else apply)()
    for old, new in zip(before, state(optimizer, *variables), strict=True):
        np.testing.assert_array_equal(old, new)


def test_adam_without_momentum_has_one_slot_per_weight():
    variable = keras.Variable(tf.ones([40, 5]))
    for beta_1, moments in ((0.9, 2), (0.0, 1)):
        optimizer = optimizers.LazyAdam(0.1, beta_1=beta_1)
        optimizer.build([variable])
        shapes = [tuple(slot.shape) for slot in optimizer.variables]
        assert shapes.count((40, 5)) == moments


def test_adam_without_momentum_handles_dense_gradients_like_keras():
    rng = np.random.default_rng(24)
    ours, theirs = keras.Variable(tf.ones([40, 5])), keras.Variable(tf.ones([40, 5]))
    lazy = optimizers.LazyAdam(0.05, beta_1=0.0)
    adam = keras.optimizers.Adam(0.05, beta_1=0.0)
    for _ in range(5):
        gradient = tf.convert_to_tensor(random_slices(rng))
        lazy.apply([gradient], [ours])
        adam.apply([gradient], [theirs])
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_moments_with_decay_skipped_equal_those_of_dense_adam():
    rng = np.random.default_rng(23)
    lazy, full = keras.Variable(tf.ones([40, 5])), keras.Variable(tf.ones([40, 5]))
    ours, adam = optimizers.LazyAdam(0.1, row_beta_1=0.9), keras.optimizers.Adam(0.1)
    everywhere = tf.IndexedSlices(tf.zeros([40, 5]), tf.range(40), tf.constant([40, 5]))
    for step in range(9):
        slices = random_slices(rng, n=10, index_dtype="int32") if step < 8 else everywhere
        ours.apply([slices], [lazy])
        adam.apply([tf.convert_to_tensor(slices)], [full])
    for mine, other in zip(state(ours)[2:4], state(adam)[2:4], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-7)


def test_a_gradient_whose_shape_is_a_list_is_accepted(member):
    variable = keras.Variable(tf.ones([40, 5]))
    slices = tf.IndexedSlices(tf.ones([2, 5]), tf.constant([3, 3]), [40, 5])
    member.make().apply([slices], [variable])
    assert np.all(variable[3] < 1)
