"""Options of Keras optimizers with sparse gradients are row-sparse or raise an error."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.optimizers.table import (
    NUM_ROWS,
    OPTIMIZERS,
    dense,
    one_of_each_class,
    random_slices,
    random_weights,
)
from tests.slow import slow_but
from tf_largeout import optimizers

OPTIONS = [
    {"clipnorm": 0.7},
    {"clipvalue": 0.2},
    {"global_clipnorm": 0.7},
    {"loss_scale_factor": 8.0},
]


@pytest.fixture(params=OPTIMIZERS)
def member(request):
    return OPTIMIZERS[request.param]


def weights_after(optimizer, to_gradient, steps=3):
    """The weights [table, bias] after steps that reach all rows, some of them repeatedly."""
    rng = np.random.default_rng(11)
    variables = [keras.Variable(random_weights(rng)), keras.Variable([1.0, 2.0])]
    for _ in range(steps):
        slices = random_slices(rng, n=600)
        slices = tf.IndexedSlices(
            tf.concat([slices.values, tf.ones([NUM_ROWS, 5])], 0),
            tf.concat([slices.indices, tf.range(NUM_ROWS, dtype=tf.int64)], 0),
            slices.dense_shape,
        )
        optimizer.apply([to_gradient(slices), tf.constant([0.3, 4.0])], variables)
    return [variable.numpy() for variable in variables]


@one_of_each_class
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options_apply_to_the_merged_gradient(member, options):
    if not member.has_one_rule:
        pytest.skip("sparse gradients have another rule")
    sparse = weights_after(member.make(**options), lambda slices: slices)
    full = weights_after(member.make(**options), dense)
    for ours, theirs in zip(sparse, full, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@one_of_each_class
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options_with_dense_gradients_are_bit_identical_to_keras(member, options):
    if member.keras_class is None:
        pytest.skip("Keras has no such optimizer")
    ours = weights_after(member.make(**options), dense)
    theirs = weights_after(member.make_keras(**options), dense)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_loss_scale_factor_divides_sparse_gradients():
    variable = keras.Variable(tf.zeros([4, 2]))
    optimizer = optimizers.LazySGD(1.0, loss_scale_factor=4.0)
    slices = tf.IndexedSlices(tf.ones([2, 2]), tf.constant([1, 1]), tf.constant([4, 2]))
    optimizer.apply([slices], [variable])
    np.testing.assert_allclose(variable, [[0, 0], [-0.5, -0.5], [0, 0], [0, 0]])


def test_excluded_variables_do_not_decay():
    table = keras.Variable(tf.ones([4, 2]), name="table")
    other = keras.Variable(tf.ones([4, 2]), name="other")
    optimizer = optimizers.LazyAdam(0.1, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["other"])
    slices = tf.IndexedSlices(tf.zeros([1, 2]), tf.constant([1]), tf.constant([4, 2]))
    optimizer.apply([slices, slices], [table, other])
    np.testing.assert_allclose(table[1], [0.95, 0.95], rtol=1e-6)
    np.testing.assert_allclose(table[0], [1, 1])
    np.testing.assert_allclose(other, np.ones([4, 2]))


@one_of_each_class
@pytest.mark.parametrize(
    "options", [{"use_ema": True}, {"gradient_accumulation_steps": 2}], ids=str
)
def test_options_that_need_every_row_raise_an_error_on_sparse_gradients(member, options):
    variable = keras.Variable(random_weights(np.random.default_rng(12)), name="table")
    slices = random_slices(np.random.default_rng(12))
    with pytest.raises(ValueError, match=f"{next(iter(options))}.*'table'.*or use keras"):
        member.make(**options).apply([slices], [variable])


@one_of_each_class
@pytest.mark.parametrize(
    "options", [{"use_ema": True}, {"gradient_accumulation_steps": 2}], ids=str
)
def test_options_that_need_every_row_work_on_dense_gradients(member, options):
    if member.keras_class is None:
        pytest.skip("Keras has no such optimizer")
    ours = pair_of_dense(member.make(**options))
    np.testing.assert_array_equal(ours, pair_of_dense(member.make_keras(**options)))


def pair_of_dense(optimizer):
    rng = np.random.default_rng(13)
    variable = keras.Variable(random_weights(rng))
    for _ in range(4):
        optimizer.apply([dense(random_slices(rng))], [variable])
    return variable.numpy()


@one_of_each_class
def test_a_constraint_raises_an_error_on_a_sparse_gradient(member):
    layer = keras.layers.Embedding(NUM_ROWS, 5, embeddings_constraint="non_neg")
    layer.build()
    slices = random_slices(np.random.default_rng(14))
    with pytest.raises(ValueError, match="constraint.*Remove the constraint"):
        member.make().apply([slices], [layer.embeddings])


@one_of_each_class
def test_a_half_precision_variable_raises_an_error_on_a_sparse_gradient(member):
    variable = keras.Variable(tf.zeros([NUM_ROWS, 5]), dtype="bfloat16")
    slices = random_slices(np.random.default_rng(15))
    with pytest.raises(ValueError, match="float32 variables.*bfloat16"):
        member.make().apply([slices], [variable])


def test_half_precision_gradient_updates_a_float32_variable(member):
    variable = keras.Variable(tf.zeros([4, 2]))
    slices = tf.IndexedSlices(
        tf.ones([1, 2], "bfloat16"), tf.constant([1]), tf.constant([4, 2])
    )
    member.make(clipnorm=1.0).apply([slices], [variable])
    assert np.all(variable.numpy()[1] < 0)


@pytest.mark.parametrize("dtype", slow_but(["bfloat16"], ["bfloat16", "float64"]))
def test_a_dense_gradient_of_another_dtype_equals_keras_in_a_graph(dtype):
    results = []
    for make in (optimizers.LazyAdam, keras.optimizers.Adam):
        variable, optimizer = keras.Variable(tf.ones([3, 2]), dtype=dtype), make(0.1, 0.5, 0.5)
        optimizer.build([variable])
        tf.function(optimizer.apply)([tf.ones([3, 2], dtype)])
        results.append(tf.cast(variable.value, "float64"))
    np.testing.assert_array_equal(*results)
    assert np.all(results[0] < 1)


def test_amsgrad_raises_an_error():
    with pytest.raises(ValueError, match="amsgrad"):
        optimizers.LazyAdam(amsgrad=True)


@one_of_each_class
def test_another_number_of_gradients_than_variables_raises_an_error(member):
    variable = keras.Variable(tf.zeros([4, 2]))
    with pytest.raises(ValueError, match="2 gradients and 1 variables"):
        member.make().apply([tf.zeros([4, 2])] * 2, [variable])


def test_overridden_private_methods_of_keras_exist():
    for name in ("_clip_gradients", "_apply_weight_decay", "_use_weight_decay"):
        assert callable(getattr(keras.optimizers.Optimizer, name))


def test_a_loss_scale_optimizer_skips_a_step_with_an_infinite_sparse_gradient(member):
    rng = np.random.default_rng(16)
    start = random_weights(rng)
    variable, oracle = keras.Variable(start), member.make_oracle(start)
    inner = member.make()
    optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=4.0)
    for value in (np.inf, 1.0):
        slices = random_slices(rng)
        scaled = tf.IndexedSlices(
            slices.values * value * optimizer.scale_loss(1.0),
            slices.indices,
            slices.dense_shape,
        )
        optimizer.apply([scaled], [variable])
        if np.isinf(value):
            np.testing.assert_array_equal(variable, start)
            assert int(inner.iterations.numpy()) == 0
            assert float(optimizer.dynamic_scale.numpy()) == 2.0
    oracle.step(slices.values, slices.indices)
    np.testing.assert_allclose(variable, oracle.weights, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("beta", [-0.1, 1.0, float("nan")])
def test_a_row_beta_1_out_of_range_raises_an_error(beta):
    with pytest.raises(ValueError, match="at least 0 and below 1. Received: row_beta_1"):
        optimizers.LazyAdam(row_beta_1=beta)


@pytest.mark.parametrize("offset", [-1, 0.5, float("nan"), None, 2**63], ids=str)
def test_an_invalid_row_step_offset_raises_an_error(offset):
    with pytest.raises(ValueError, match="at least 0.*Received: row_step_offset"):
        optimizers.LazyAdam(row_step_offset=offset)


def test_only_a_built_optimizer_of_ours_changes_the_check_of_a_wrapper(monkeypatch):
    cls = keras.optimizers.LossScaleOptimizer
    monkeypatch.setattr(cls, "check_finite", inspect.unwrap(cls.check_finite))
    cls(keras.optimizers.Adam()).build([keras.Variable([1.0])])
    wrapped = cls(optimizers.LazyAdam())
    assert not hasattr(cls.check_finite, "__wrapped__")
    wrapped.build([keras.Variable([1.0])])
    assert hasattr(cls.check_finite, "__wrapped__")
