"""Training on a GPU with stock operations; a second CPU device stands in for the GPU."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from benchmarks.harness.gpu_models import cases
from tests.slow import slow_but
from tf_largeout.ops import devices, places

STAND_IN = "CPU:1"
CASES = cases()

pytestmark = pytest.mark.skipif(
    not devices.runs_stock(), reason="needs the stock operations: LARGEOUT_OPS=stock"
)


def trained(case, weights):
    """Returns the model and losses, the result of `evaluate`, and weights after some steps."""
    model = case.build()
    model.set_weights(weights)
    x, y = case.batch()
    losses = [model.train_on_batch(x, y) for _ in range(3)]
    exact = model.evaluate(x, y, batch_size=len(y), verbose=0)
    logits = model.predict(x, verbose=0)
    return model, [losses, exact, logits, *(one.numpy() for one in model.weights)]


@pytest.mark.parametrize(
    "name",
    slow_but(["uniform", "unigram", "RowwiseAdagrad", "SoftmaxLoss", "sequence"], CASES),
)
def test_training_on_a_gpu_equals_that_on_the_cpu(name):
    weights = CASES[name].build().get_weights()
    _, expected = trained(CASES[name], weights)
    with places.stand_in(STAND_IN), tf.device(STAND_IN):
        model, found = trained(CASES[name], weights)
        variables = [*model.trainable_variables, *model.optimizer.variables[1:]]
        assert all(map(devices.is_on_gpu, variables))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def state(model):
    """Returns all variables of a model and its optimizer; the seed counts failed steps, too."""
    variables = [*model.variables, *model.optimizer.variables]
    return [one.numpy() for one in variables if not one.path.endswith("seed_state")]


def test_numbers_that_are_not_finite_change_nothing_on_a_gpu():
    case = CASES["uniform"]
    with places.stand_in(STAND_IN), tf.device(STAND_IN):
        model = case.build()
        x, y = case.batch()
        model.train_on_batch(x, y)
        model.reset_metrics()
        before = state(model)
        for bad in (np.nan, np.inf):
            spoilt = x.copy()
            spoilt[3, 1] = bad
            assert np.isnan(model.train_on_batch(spoilt, y)[0])
            model.reset_metrics()
            for one, other in zip(state(model), before, strict=True):
                np.testing.assert_array_equal(one, other)
        with pytest.raises(tf.errors.InvalidArgumentError, match="class ids"):
            model.train_on_batch(x, np.full_like(y, 999))
        model.reset_metrics()
        for one, other in zip(state(model), before, strict=True):
            np.testing.assert_array_equal(one, other)
        assert np.isfinite(model.train_on_batch(x, y)[0])


def test_a_compiled_model_has_its_counters_on_the_gpu():
    case = CASES["unigram"]
    weights = case.build().get_weights()
    _, expected = trained(case, weights)
    with places.stand_in(STAND_IN), tf.device(STAND_IN):
        model = case.build()
        model.set_weights(weights)
        x, y = case.batch()
        places_of_seeds, losses = [], []
        for is_compiled in (True, False, True):
            model.jit_compile = is_compiled
            model.make_train_function(force=True)
            losses.append(model.train_on_batch(x, y))
            seed = model.layers[-1].seed_state
            places_of_seeds.append(devices.is_on_gpu(seed))
            assert int(seed.numpy()[1]) == len(losses)
    assert places_of_seeds == [True, False, True]
    np.testing.assert_allclose(losses, expected[0], rtol=1e-4, atol=1e-5)


def test_searches_and_files_of_a_model_on_a_gpu(tmp_path):
    case = CASES["uniform"]
    with places.stand_in(STAND_IN), tf.device(STAND_IN):
        model = case.build()
        x, y = case.batch()
        model.train_on_batch(x, y)
        _, expected = tflo.retrieval.predict_top_k(model, x, 5, verbose=0)
        head, features = model.layers[-1], model.layers[0](x)
        for kind, least in [("BruteForceIndex", 1.0), ("InvertedFileIndex", 0.9)]:
            index = getattr(tflo.retrieval, kind)()
            index.build(head.class_embeddings(), head.class_biases())
            assert np.mean(np.asarray(index.top_k(features, 5)[1]) == expected) >= least
        model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    _, found = tflo.retrieval.predict_top_k(loaded, x, 5, verbose=0)
    np.testing.assert_array_equal(found, expected)
