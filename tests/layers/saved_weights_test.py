"""Loading the weights of a `LargeOutput` into one with another sampler."""

import itertools

import keras
import numpy as np
import pytest

from tests.slow import slow_but
from tf_largeout import layers, losses, optimizers, samplers

N, DIM = 60, 6
FEATURES = np.random.default_rng(3).normal(size=(32, DIM)).astype("float32")
LABELS = np.arange(32)

SAMPLERS = {
    "none": lambda: None,
    "uniform": lambda: samplers.UniformSampler(7),
    "lsh": lambda: samplers.LSHSampler(7),
    "lsh with fewer tables": lambda: samplers.LSHSampler(7, tables={"num_tables": 3}),
    "inverted file": lambda: samplers.InvertedFileSampler(7, num_hard=3, start_step=0),
    "kernel tree": lambda: samplers.KernelTreeSampler(7),
}


def _model(sampler, num_classes=N, **kwargs):
    head = layers.LargeOutput(num_classes, SAMPLERS[sampler](), **kwargs)
    return keras.Sequential([keras.Input([DIM]), head])


def _train(model):
    trained = keras.Sequential(model.layers)  # the saved model has no optimizer
    sampled = model.layers[-1].sampler is not None
    loss = losses.SampledSoftmaxLoss() if sampled else losses.SoftmaxLoss()
    trained.compile(optimizers.LazyAdam(0.1), loss, run_eagerly=True)
    assert np.isfinite(trained.fit(FEATURES, LABELS, verbose=0).history["loss"]).all()


@pytest.fixture(params=["none", "lsh"], name="saved", scope="module")
def _saved(request, tmp_path_factory):
    model = _model(request.param)
    _train(model)
    path = tmp_path_factory.mktemp("saved") / "model.weights.h5"
    model.save_weights(path)
    return request.param, model, path


@pytest.mark.parametrize(
    "saved, sampler",
    slow_but(
        [("lsh", "none"), ("lsh", "lsh with fewer tables")],
        itertools.product(["none", "lsh"], SAMPLERS),
    ),
    indirect=["saved"],
)
def test_weights_load_into_a_layer_with_another_sampler(saved, sampler, caplog):
    name, model, path = saved
    other = _model(sampler)
    other.load_weights(path)
    np.testing.assert_array_equal(other(FEATURES), model(FEATURES))
    if name == sampler:
        for weight, same in zip(
            model.layers[-1].weights, other.layers[-1].weights, strict=True
        ):
            np.testing.assert_array_equal(weight, same, err_msg=weight.path)
    assert ("starts with a new state" in caplog.text) == (sampler not in (name, "none"))
    _train(other)


@pytest.mark.parametrize("arguments", [{"num_classes": N + 1}, {"use_bias": False}])
def test_weights_of_another_shape_raise_an_error(saved, arguments):
    _, _, path = saved
    model = _model("uniform", **arguments)
    before = [weight.numpy() for weight in model.weights]
    with pytest.raises(ValueError, match="(?s)has weights of the shapes.*The file has"):
        model.load_weights(path)
    for was, now in zip(before, model.weights, strict=True):
        np.testing.assert_array_equal(now, was)
