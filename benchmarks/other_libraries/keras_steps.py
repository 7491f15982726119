"""`fit`, `evaluate` and `top_k` of `tf_largeout` on Keras's JAX backend, for a `StepCase`."""

import functools
import os

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import keras

import tf_largeout as tflo
from benchmarks.harness import machine

_K = 10


def prepare(threads):
    """Returns the versions of the library, whose threads are the cores of this process."""
    return f"keras {keras.__version__}, jax {jax.__version__}"


def new_step(case, features, labels):
    """Returns a function of the number of a batch, and the name of its loss.

    Args:
        case: The attributes of a `StepCase`. With an attribute `what`, the function calls
            `test_on_batch` ("evaluate") or `top_k`. Otherwise it returns model and arrays.
        features: `[num_batches, batch_size, dim]`.
        labels: `[num_batches, batch_size]`.
    """
    dtype = "bfloat16" if case["method"] == "keras_bfloat16" else None
    sampler = tflo.samplers.UniformSampler(case["num_sampled"])
    layer = tflo.layers.LargeOutput(case["num_classes"], sampler, embeddings_dtype=dtype)
    model = keras.Sequential([keras.layers.Dense(case["dim"]), layer])
    loss, metrics = tflo.losses.SampledSoftmaxLoss(), [tflo.metrics.PrecisionAtK(1)]
    model.build(features.shape[1:])
    if case.get("what") == "top_k":
        return functools.partial(_top_k, model, features), "top_k"
    if case.get("what") == "evaluate":
        model.compile("sgd", loss, metrics=metrics)
        return lambda i: model.test_on_batch(features[i], labels[i]), loss.name
    model.compile(tflo.optimizers.LazyAdam(1e-3), loss)
    return lambda i: (model, features, labels), loss.name


def _top_k(model, features, i):
    encoder, layer = model.layers
    jax.block_until_ready(layer.top_k(encoder(features[i]), _K))


def fit(new_step, num_batches, clock):
    """Measures the steps of `fit` on arrays; see `step_loop.measure`."""
    model, features, labels = new_step(0)
    features, labels = features.reshape(-1, features.shape[-1]), labels.reshape(-1)
    times = _StepTimes(clock)
    model.fit(
        features,
        labels,
        batch_size=len(labels) // num_batches,
        epochs=10**6,
        shuffle=False,
        verbose=0,
        callbacks=[times],
    )
    return clock.figures(times.standing)


class _StepTimes(keras.callbacks.Callback):
    """Measures the steps by a `StepClock`. Each step ends when its state is computed."""

    def __init__(self, clock):
        super().__init__()
        self.clock, self.standing = clock, None

    def on_train_batch_begin(self, batch, logs=None):
        self.clock.begin()

    def on_train_batch_end(self, batch, logs=None):
        jax.block_until_ready(self.model._jax_state)
        self.standing = self.standing or machine.resident_mb()
        self.model.stop_training = self.clock.end()
