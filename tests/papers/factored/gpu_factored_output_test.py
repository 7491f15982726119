"""A model with a `FactoredOutput` trains the same on the GPU as on the CPU."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import gpu

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda_kernels")]

NUM_CLASSES, DIM, BATCH, STEPS = 301, 12, 16, 4
LOSSES = {
    "squared_error": tflo.losses.SquaredErrorLoss,
    "spherical_softmax": tflo.losses.SphericalSoftmaxLoss,
    "taylor_softmax": tflo.losses.TaylorSoftmaxLoss,
    "z_loss": tflo.losses.ZLoss,
}


def data(first=0, last=STEPS):
    random = np.random.default_rng(9)
    x = random.normal(size=[STEPS * BATCH, DIM]).astype("float32")
    y = random.integers(-1, NUM_CLASSES, [STEPS * BATCH, 2])
    y[:, 0] = np.arange(len(y)) % 7  # labels repeat
    return x[first * BATCH : last * BATCH], y[first * BATCH : last * BATCH]


def new_model(device, name, rate=0.05):
    """Returns a model with the same weights on any `device`."""
    random = np.random.default_rng(3)
    head = tflo.layers.FactoredOutput(
        NUM_CLASSES, rate, embeddings_initializer=random.normal(size=[NUM_CLASSES, DIM]) / 4
    )
    with tf.device(device):
        model = keras.Sequential([keras.Input([DIM]), keras.layers.Dense(DIM, "tanh"), head])
        model.compile(keras.optimizers.SGD(0.05), LOSSES[name]())
    model.layers[0].kernel.assign(random.normal(size=[DIM, DIM]) / 4)
    return model


def fit(model, device, first=0, last=STEPS):
    # On the GPU without naming it, as users do.
    place = tf.device(device) if device == "CPU:0" else contextlib.nullcontext()
    with place:
        return model.fit(*data(first, last), batch_size=BATCH, shuffle=False, verbose=0).history


def assert_same_weights(one, other, tolerance=1e-5):
    for left, right in zip(one.weights, other.weights, strict=True):
        np.testing.assert_allclose(
            left, right, rtol=tolerance, atol=tolerance, err_msg=left.path
        )


def trained_on_both(name, rate=0.05):
    models = [new_model(device, name, rate) for device in ("CPU:0", gpu.NAME)]
    for weight in models[1].layers[-1].class_matrix._weights:
        assert weight.value.device.endswith(gpu.NAME), weight.path
    losses = [fit(m, d)["loss"] for m, d in zip(models, ("CPU:0", gpu.NAME), strict=True)]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    assert_same_weights(*models)
    return models


@pytest.mark.parametrize("name", LOSSES)
def test_each_loss_trains_the_same_as_on_the_cpu(name):
    on_cpu, on_gpu = trained_on_both(name)
    with tf.device("CPU:0"):
        expected = on_cpu.evaluate(*data(), verbose=0)
        _, ids = on_cpu.layers[-1].top_k(data()[0], 5)
    np.testing.assert_allclose(on_gpu.evaluate(*data(), verbose=0), expected, rtol=1e-5)
    assert np.mean(on_gpu.layers[-1].top_k(data()[0], 5)[1] == ids) > 0.95
    assert max(on_gpu.layers[-1].drift().values()) < 1e-4


def test_training_resumes_from_a_file(tmp_path):
    straight, first = (new_model(gpu.NAME, "taylor_softmax") for _ in range(2))
    fit(straight, gpu.NAME)
    fit(first, gpu.NAME, last=2)
    first.save(tmp_path / "model.keras")
    with tf.device(gpu.NAME):
        second = keras.models.load_model(tmp_path / "model.keras")
    fit(second, gpu.NAME, first=2)
    assert_same_weights(straight, second)


def folding_model(device):
    """Returns a model that has folded its factors during training."""
    head = tflo.layers.FactoredOutput(NUM_CLASSES, 0.4, embeddings_initializer="ones")
    with tf.device(device):
        model = keras.Sequential([keras.Input([DIM]), head])
        model.compile(loss=LOSSES["squared_error"]())
    x, y = data()
    place = tf.device(device) if device == "CPU:0" else contextlib.nullcontext()
    with place:
        model.fit(0.02 * x, y, batch_size=BATCH, epochs=4, shuffle=False, verbose=0)
    return model


def test_folds_and_rows_with_pending_changes_equal_those_on_the_cpu():
    on_cpu, on_gpu = folding_model("CPU:0"), folding_model(gpu.NAME)
    state = on_gpu.layers[-1].class_matrix.state
    count = state.folds.numpy()[0, 0]
    assert count >= 2 and len(set(state.seen.numpy())) >= 2
    assert count == on_cpu.layers[-1].class_matrix.state.folds.numpy()[0, 0]
    assert_same_weights(on_cpu, on_gpu, 1e-4)
    x, y = data()
    with tf.device("CPU:0"):
        expected, value = on_cpu.predict(x, verbose=0), on_cpu.evaluate(x, y, verbose=0)
    np.testing.assert_allclose(on_gpu.layers[-1](x), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(on_gpu.evaluate(x, y, verbose=0), value, rtol=1e-4)
    assert state.folds.numpy()[0, 0] == 0 and max(on_gpu.layers[-1].drift().values()) < 1e-4


def test_an_extreme_learning_rate_raises_an_error_and_changes_nothing():
    model = new_model(gpu.NAME, "squared_error", rate=1e200)
    before = [weight.numpy() for weight in model.layers[-1].weights]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Lower the learning rate"):
        fit(model, gpu.NAME, last=1)
    for weight, value in zip(model.layers[-1].weights, before, strict=True):
        np.testing.assert_array_equal(weight, value)
