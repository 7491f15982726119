"""The initial values of the weights of a `LargeOutput`."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.harness import machine, own_process
from tf_largeout import layers, losses
from tf_largeout.variables import initializers

N, DIM = 23, 6
ROWS = np.random.default_rng(3).normal(size=(N, DIM))
BIASES = np.arange(N)


@pytest.fixture
def small_tables_count_as_large(monkeypatch):
    """Small tables are initialized in a `tf.function`, like large ones."""
    monkeypatch.setattr(initializers, "_LARGE", 1)


def test_biases_start_at_zero_or_from_their_initializer():
    for initializer, expected in (
        ("zeros", 0),
        (None, 0),
        ("ones", 1),
        (keras.initializers.Constant(-math.log(N)), -math.log(N)),
    ):
        head = layers.LargeOutput(N, bias_initializer=initializer)
        head.build((None, DIM))
        np.testing.assert_allclose(head.bias, np.full(N, expected), rtol=1e-6)


@pytest.mark.usefixtures("small_tables_count_as_large")
def test_creating_many_layers_causes_no_tensorflow_warning(caplog):
    log = tf.get_logger()
    log.addHandler(caplog.handler)
    for _ in range(8):  # as in a hyperparameter search
        layers.LargeOutput(N).build((None, DIM))
    log.removeHandler(caplog.handler)
    assert caplog.messages == []


@pytest.mark.parametrize(
    "form",
    [np.asarray, tf.constant, np.ndarray.tolist, lambda x: tf.cast(x, tf.bfloat16)],
    ids=["array", "tensor", "list", "bfloat16"],
)
@pytest.mark.parametrize("in_function", [False, True])
def test_arrays_are_used_as_initial_values(form, in_function):
    head = layers.LargeOutput(
        N, embeddings_initializer=form(ROWS), bias_initializer=form(BIASES)
    )
    (tf.function(head) if in_function else head)(np.ones([2, DIM], "float32"))
    np.testing.assert_array_equal(head.embeddings, np.asarray(form(ROWS), "float32"))
    np.testing.assert_array_equal(head.bias, BIASES)
    assert head.embeddings.dtype == head.bias.dtype == "float32"


def test_a_saved_model_keeps_its_rows_and_its_config_omits_them(tmp_path):
    head = layers.LargeOutput(N, embeddings_initializer=ROWS, bias_initializer=BIASES)
    model = keras.Sequential([keras.Input([DIM]), head])
    assert len(model.to_json()) < 3000
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").layers[-1]
    np.testing.assert_array_equal(again.embeddings, head.embeddings)
    np.testing.assert_array_equal(again.bias, BIASES)


@pytest.mark.parametrize("name", ["embeddings_initializer", "bias_initializer"])
def test_arrays_of_another_shape_report_both_shapes(name):
    head = layers.LargeOutput(N, **{name: np.zeros([N + 1, DIM])})
    with pytest.raises(ValueError, match=rf"`{name}`.*\(23,.*shape \(24, 6\)"):
        head.build((None, DIM))


@pytest.mark.parametrize("name", ["embeddings_initializer", "bias_initializer"])
@pytest.mark.parametrize("bad", [np.array(["a"]), np.array([None]), [["b"]]])
def test_arrays_that_are_not_numeric_raise_an_error(name, bad):
    with pytest.raises(ValueError, match=f"`{name}` must be .* array of numbers"):
        layers.LargeOutput(N, **{name: bad})


@pytest.mark.parametrize("name", ["embeddings_initializer", "bias_initializer"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e39])
def test_arrays_that_are_not_finite_raise_an_error(name, bad):
    with pytest.raises(ValueError, match=f"`{name}` must be finite"):
        layers.LargeOutput(2, **{name: [1.0, bad]})


def test_nce_starts_with_probabilities_that_sum_to_one():
    head = layers.LargeOutput(
        N, "uniform", True, "zeros", keras.initializers.Constant(-math.log(N))
    )
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile("sgd", losses.NCELoss(), run_eagerly=True)
    total = np.exp(model.predict(np.ones([1, DIM]), verbose=0)).sum()
    assert total == pytest.approx(1, rel=1e-6)
    assert np.isfinite(model.fit(ROWS, BIASES, verbose=0).history["loss"]).all()


@pytest.mark.usefixtures("small_tables_count_as_large")
@pytest.mark.parametrize("in_function", [False, True])
def test_random_rows_equal_those_of_the_initializer(in_function):
    initializer = keras.initializers.RandomNormal(stddev=0.5, seed=3)
    for head in (
        layers.LargeOutput(N, embeddings_initializer=initializer),
        layers.FactoredOutput(N, 1.0, embeddings_initializer=initializer),
    ):
        (tf.function(head) if in_function else head)(np.ones([2, DIM], "float32"))
        np.testing.assert_array_equal(head.class_embeddings(), initializer((N, DIM)))


def _mb_of_a_table(num_classes, dim):
    layers.LargeOutput(2).build((None, dim))  # loads what TensorFlow needs for any layer
    before = machine.peak_mb()
    layers.LargeOutput(num_classes).build((None, dim))
    return machine.peak_mb() - before


@pytest.mark.slow
def test_initializing_random_rows_needs_no_copy():
    table = 1_000_000 * 64 * 4 / 2**20
    assert table < own_process.call(_mb_of_a_table, 1_000_000, 64) < 1.4 * table


def test_large_tables_are_initialized_in_a_function(monkeypatch):
    """In a `tf.function`, TensorFlow makes no copies; the test above measures the memory."""
    monkeypatch.setattr(initializers, "_LARGE", N * DIM)
    eager = []

    class Watched(keras.initializers.RandomNormal):
        def __call__(self, shape, dtype=None):
            eager.append(tf.executing_eagerly())
            return super().__call__(shape, dtype)

    for make in (layers.LargeOutput, lambda *a, **kw: layers.FactoredOutput(*a, 1.0, **kw)):
        for num_classes in (N, N - 1):
            make(num_classes, embeddings_initializer=Watched()).build((None, DIM))
    assert eager == [False, True, False, True]


@pytest.mark.usefixtures("small_tables_count_as_large")
def test_rows_from_a_seed_generator_advance_it():
    rows = []
    for _ in range(2):
        initializer = keras.initializers.RandomNormal(seed=keras.random.SeedGenerator(5))
        head = layers.LargeOutput(N, embeddings_initializer=initializer)
        head.build((None, DIM))
        rows.append(head.class_embeddings())
        assert not np.array_equal(rows[-1], initializer((N, DIM)))
    np.testing.assert_array_equal(*rows)
    given = keras.initializers.RandomNormal(seed=keras.random.SeedGenerator(5))
    np.testing.assert_array_equal(rows[0], given((N, DIM)))
