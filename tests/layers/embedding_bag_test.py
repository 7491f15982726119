"""`EmbeddingBag` against a loop over ids, and as a Keras layer."""

import itertools
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness, low_precision
from tests.reference.embedding_bag import embedding_bag
from tests.reference.finite_differences import finite_differences
from tests.replicas import two_replicas
from tests.slow import slow_but
from tf_largeout import layers, losses, optimizers, samplers

ROWS, DIM = 9, 3
BAGS = [[3, 1, 3], [], [8], [], [2, 7, 1, 5], []]  # the last bags of a batch may be empty
COMBINERS = pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
# In training, an op of the library sums the bags that are not ragged.
TRAINING = pytest.mark.parametrize("training", [False, True])


def _table():
    return np.random.default_rng(4).normal(size=(ROWS, DIM)).astype("float32")


def _weights():
    rng = np.random.default_rng(5)
    return [list(rng.uniform(0.5, 2.0, len(bag)).astype("float32")) for bag in BAGS]


def _padded(rows, padding, dtype):
    width = max(map(len, rows)) + 1
    return np.array([[*row, *[padding] * (width - len(row))] for row in rows], dtype)


def _layer(**kwargs):
    layer = layers.EmbeddingBag(ROWS, DIM, **kwargs)
    layer.build()
    layer.embeddings.assign(_table())
    return layer


def _ones():
    return [[1.0] * len(bag) for bag in BAGS]


@COMBINERS
@TRAINING
@pytest.mark.parametrize(
    "weighted, padding",
    slow_but([(True, 0), (False, -1), (True, 4)], itertools.product([False, True], [0, -1, 4])),
)
def test_dense_bags_equal_the_loop(combiner, training, weighted, padding):
    layer = _layer(combiner=combiner, padding_id=padding)
    weights = _padded(_weights(), 7.0, "float32") if weighted else None
    expected = embedding_bag(BAGS, _weights() if weighted else _ones(), _table(), combiner)
    for dtype in ("int32", "int64"):
        result = layer(_padded(BAGS, padding, dtype), weights, training=training)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@COMBINERS
@TRAINING
@pytest.mark.parametrize("weighted", [False, True])
def test_ragged_bags_equal_the_loop(combiner, training, weighted):
    layer = _layer(combiner=combiner)
    ids = tf.ragged.constant(BAGS, dtype=tf.int64)
    weights = tf.ragged.constant(_weights(), dtype=tf.float32) if weighted else None
    expected = embedding_bag(BAGS, _weights() if weighted else _ones(), _table(), combiner)
    result = layer(ids, weights, training=training)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    inputs = keras.Input([None], dtype="int64", ragged=True)
    model = keras.Model(inputs, layer(inputs))
    if not weighted:
        np.testing.assert_allclose(model(ids), expected, rtol=1e-5, atol=1e-6)


@TRAINING
def test_without_padding_id_row_0_is_summed(training):
    table = _table()
    layer = _layer(padding_id=None, combiner="sum")
    result = layer(np.array([[0, 2]]), training=training)
    np.testing.assert_allclose(result, [table[0] + table[2]], rtol=1e-6)


@TRAINING
def test_leading_dimensions_are_kept(training):
    layer = _layer()
    ids = _padded(BAGS, 0, "int64")
    weights = _padded(_weights(), 0, "float32")
    shaped = layer(ids.reshape(2, 3, -1), weights.reshape(2, 3, -1), training=training)
    flat = layer(ids, weights, training=training)
    np.testing.assert_array_equal(shaped, np.reshape(flat, (2, 3, DIM)))
    assert layer.compute_output_shape((None, 3, 5)) == (None, 3, DIM)
    assert layer(keras.Input([3, None], dtype="int32")).shape == (None, 3, DIM)


@pytest.mark.parametrize("training", [None, False, True])
def test_a_symbolic_call_takes_training(training):
    inputs, layer = keras.Input([4], dtype="int32"), _layer()
    assert layer.compute_output_spec(inputs, training=training).shape == (None, DIM)
    model = keras.Model(inputs, layer(inputs, training=training))
    ids = np.array([[3, 1, 3, 0]])
    np.testing.assert_array_equal(model(ids), layer(ids, training=training))


@TRAINING
@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0), (2, 0, 3)])
def test_empty_batches_and_empty_bags_give_zeros(training, shape):
    result = _layer()(np.zeros(shape, "int64"), training=training)
    assert result.shape == (*shape[:-1], DIM) and not np.any(result)


@COMBINERS
@TRAINING
def test_weights_that_sum_to_zero_give_finite_results(combiner, training):
    layer, ids = _layer(combiner=combiner), np.array([[1, 2]])
    result = layer(ids, np.array([[1.0, -1.0]], "float32"), training=training)
    assert np.isfinite(result).all()
    zero = layer(ids, np.zeros([1, 2], "float32"), training=training)
    np.testing.assert_array_equal(zero, np.zeros([1, DIM]))


class _Problem:
    """The variables for `finite_differences`: the table and the flat weights."""

    def __init__(self, combiner):
        self.table, self.combiner = _table(), combiner
        self.flat_weights = np.concatenate(_weights()).astype("float32")

    def expected(self, oracle):
        ends = np.cumsum([len(bag) for bag in BAGS])[:-1]
        return oracle(BAGS, np.split(self.flat_weights, ends), self.table, self.combiner) ** 2


@COMBINERS
@TRAINING
def test_gradients_are_sparse_and_equal_those_of_the_loop(combiner, training):
    layer = _layer(combiner=combiner)
    ids, weights = _padded(BAGS, 0, "int64"), _padded(_weights(), 0, "float32")
    weights = tf.constant(weights)
    with tf.GradientTape() as tape:
        tape.watch(weights)
        loss = tf.reduce_sum(layer(ids, weights, training=training) ** 2)
    of_table, of_weights = tape.gradient(loss, [layer.embeddings.value, weights])
    assert isinstance(of_table, tf.IndexedSlices)
    occurring = sum(BAGS, [])
    expected = set(occurring) if training else occurring
    assert sorted(of_table.indices.numpy()) == sorted(expected)
    problem = _Problem(combiner)
    expected = finite_differences(problem, "table", embedding_bag)
    np.testing.assert_allclose(tf.convert_to_tensor(of_table), expected, rtol=1e-3, atol=1e-4)
    expected = finite_differences(problem, "flat_weights", embedding_bag)
    np.testing.assert_allclose(of_weights[ids != 0], expected, rtol=1e-3, atol=1e-4)


def _rounded(numbers, dtype):
    return tf.cast(tf.cast(numbers, dtype), tf.float64).numpy()


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16", "float16"])
@TRAINING
def test_low_precision_sums_in_the_dtype_of_the_variable(dtype, training):
    layer = _layer(dtype=dtype)
    weights = _padded(_weights(), 0, "float32")
    result = layer(_padded(BAGS, 0, "int64"), weights, training=training)
    policy = keras.DTypePolicy(dtype)
    assert (result.dtype, layer.embeddings.dtype) == (
        policy.compute_dtype,
        policy.variable_dtype,
    )
    rounded = [_rounded(one, policy.compute_dtype) for one in _weights()]
    table = _rounded(_table(), policy.compute_dtype)
    naive = tf.cast(embedding_bag(BAGS, rounded, table, "sqrtn"), policy.compute_dtype)
    exact = embedding_bag(BAGS, _weights(), _table(), "sqrtn")
    low_precision.assert_within_twice_the_naive_error(result, naive, exact)


@pytest.mark.parametrize(
    "dtype, row, given",
    slow_but(
        [("float32", 2**24 + 1, "int32")],
        [
            (dtype, row, given)
            for dtype, row in [
                ("float32", 2**24 + 1),
                ("mixed_bfloat16", 257),
                ("mixed_float16", 2049),
            ]
            for given in ("int32", "int64")
        ],
    ),
)
def test_a_sequential_without_input_passes_large_ids_unchanged(dtype, row, given):
    def odd_rows(shape, dtype=None):
        return tf.cast(tf.range(shape[0])[:, None] % 2, dtype)

    layer = layers.EmbeddingBag(row + 2, 1, embeddings_initializer=odd_rows, dtype=dtype)
    model = keras.Sequential([layer])
    ids = np.array([[row], [row + 1]], given)
    np.testing.assert_array_equal(model(ids), [[1], [0]])
    np.testing.assert_array_equal(model.predict(ids, verbose=0), [[1], [0]])


def test_a_step_changes_only_the_rows_that_occur():
    with two_replicas().scope():
        layer = layers.EmbeddingBag(ROWS, DIM)
        model = keras.Sequential([layer, layers.LargeOutput(40)])
        model.compile(optimizers.LazySGD(1.0), losses.SoftmaxLoss())
        model.build((None, 3))
        model.optimizer.build(model.trainable_variables)  # avoids a second trace
    ids = np.array([[3, 1, 0], [8, 0, 0], [3, 3, 2], [1, 8, 0]])
    layer.embeddings.assign(_table())
    model.fit(ids, np.arange(4), batch_size=4, shuffle=False, verbose=0)
    moved = np.any(layer.embeddings.numpy() != _table(), axis=1)
    assert sorted(np.flatnonzero(moved)) == [1, 2, 3, 8]


def _functional(**kwargs):
    ids = keras.Input([None], dtype="int64", name="ids")
    weights = keras.Input([None], name="weights")
    features = layers.EmbeddingBag(ROWS, DIM, **kwargs)(ids, weights)
    outputs = layers.LargeOutput(40, samplers.UniformSampler(8))(features)
    return keras.Model({"ids": ids, "weights": weights}, outputs)


def _sequential():
    head = layers.LargeOutput(40, samplers.UniformSampler(8))
    return keras.Sequential([layers.EmbeddingBag(ROWS, DIM), head])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
@pytest.mark.parametrize(
    "make",
    [
        _functional,
        pytest.param(lambda: _functional(dtype="mixed_bfloat16"), marks=pytest.mark.slow),
        pytest.param(_sequential, marks=pytest.mark.slow),
    ],
)
def test_a_model_trained_with_weights_can_be_saved(make, tmp_path):
    inputs = {"ids": _padded(BAGS, 0, "int32"), "weights": _padded(_weights(), 0, "float32")}
    data = tf.data.Dataset.from_tensors((inputs, np.arange(len(BAGS)))).repeat(60)
    model = make()
    model.compile(optimizers.LazyAdam(0.1), losses.SampledSoftmaxLoss())
    before = model.evaluate(data.take(1), verbose=0)
    model.optimizer.build(model.trainable_variables)  # avoids a second trace
    model.fit(data, verbose=0)
    assert model.evaluate(data.take(1), verbose=0) < 0.7 * before
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(inputs), model(inputs))


_LOAD = """
import sys
import keras, numpy as np
import tf_largeout
model = keras.saving.load_model(sys.argv[1])
np.save(sys.argv[2], model.predict(np.array([[3, 1, 0], [8, 0, 0]]), verbose=0))
"""


@pytest.mark.slow
@pytest.mark.parametrize("with_input", [False, True])
def test_a_saved_model_loads_after_importing_only_the_package(with_input, tmp_path):
    inputs = [keras.Input([None], dtype="int32")] if with_input else []
    model = keras.Sequential([*inputs, *_sequential().layers])
    ids = np.array([[3, 1, 0], [8, 0, 0]])
    expected = model.predict(ids, verbose=0)
    model.save(tmp_path / "model.keras")
    files = [str(tmp_path / "model.keras"), str(tmp_path / "logits.npy")]
    subprocess.run([sys.executable, "-c", _LOAD, *files], check=True, capture_output=True)
    np.testing.assert_allclose(np.load(files[1]), expected, rtol=1e-6, atol=1e-7)


def test_config_round_trip():
    for kwargs in ({}, {"combiner": "sum", "padding_id": None, "dtype": "mixed_float16"}):
        clone = harness.config_round_trip(
            layers.EmbeddingBag(ROWS, DIM, embeddings_initializer="zeros", **kwargs)
        )
        assert clone.dtype_policy.name == kwargs.get("dtype", "float32")
