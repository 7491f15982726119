"""Small models with each part of the library, whose steps `gpu_kernels` and tests trace."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import tf_largeout as tflo

NUM_CLASSES, DIM, BATCH = 300, 8, 16
# Samplers whose negatives do not depend on the model: their steps must not wait for the GPU.
STATIC = ("uniform", "log-uniform", "unigram", "unigram, with replacement", "uniform, own")


@dataclasses.dataclass(frozen=True)
class Case:
    """A model: `build()` returns it compiled, `x` and `y` are data of one batch."""

    build: Callable[[], keras.Model]
    x: Any
    y: np.ndarray

    def batch(self):
        """Returns the features and the labels."""
        return self.x, self.y


def cases():
    """Returns the cases by name."""
    found = {}
    counts = np.arange(1, NUM_CLASSES + 1)
    samplers = tflo.samplers
    for name, sampler in {
        "uniform": lambda: samplers.UniformSampler(32, seed=1),
        "log-uniform": lambda: samplers.LogUniformSampler(32, seed=1),
        "unigram": lambda: samplers.UnigramSampler(32, counts, seed=1),
        "unigram, with replacement": lambda: samplers.UnigramSampler(
            32, counts, unique=False, seed=1
        ),
        "uniform, own": lambda: samplers.UniformSampler(32, shared=False, seed=1),
        "top k": lambda: samplers.TopKSampler(32, seed=1),
        "softmax": lambda: tflo.samplers.SoftmaxSampler(32, seed=1),
        "inverted file": lambda: samplers.InvertedFileSampler(
            32, num_hard=4, start_step=0, seed=1
        ),
    }.items():
        found[name] = _dense_case(sampler)
    for name, loss in {
        "SoftmaxLoss": tflo.losses.SoftmaxLoss,
        "SigmoidLoss": tflo.losses.SigmoidLoss,
        "NCELoss": tflo.losses.NCELoss,
        "DecoupledSoftmaxLoss": tflo.losses.DecoupledSoftmaxLoss,
    }.items():
        found[name] = _dense_case(lambda: samplers.UniformSampler(32, seed=1), loss=loss)
    for name in ("RowwiseAdagrad", "LazyAdagrad", "LazySGD"):
        optimizer = getattr(tflo.optimizers, name)
        found[name] = _dense_case(
            lambda: samplers.UniformSampler(32, seed=1), lambda one=optimizer: one(0.1)
        )
    found["LazyAdam, clipnorm"] = _dense_case(
        lambda: samplers.UniformSampler(32, seed=1),
        lambda: tflo.optimizers.LazyAdam(0.01, clipnorm=1.0),
    )
    found["bfloat16 rows"] = _dense_case(
        lambda: samplers.UniformSampler(32, seed=1), embeddings_dtype="bfloat16"
    )
    found["normalize, learned scale"] = _dense_case(
        lambda: samplers.UniformSampler(32, seed=1), normalize=True, scale="learned"
    )
    labels = np.arange(BATCH) % 7
    found["several labels"] = dataclasses.replace(
        found["uniform"], y=np.stack([labels, labels + 1, np.full(BATCH, -1)], axis=1)
    )
    found["sequence"] = Case(_sequence_model, _ids([BATCH, 5]), _ids([BATCH, 5]) % 7)
    found["EmbeddingBag"] = Case(_bag_model, _ids([BATCH, 5]), labels)
    found["ItemTower"] = Case(_tower_model, _features(), labels)
    found["FactoredOutput"] = Case(_factored_model, _features(), labels)
    return found


def _features():
    return np.random.default_rng(0).standard_normal((BATCH, DIM)).astype("float32")


def _ids(shape):
    return np.random.default_rng(1).integers(0, 50, shape)


def _dense_case(sampler, optimizer=None, loss=None, **options):
    def build():
        head = tflo.layers.LargeOutput(NUM_CLASSES, sampler(), name="head", **options)
        return _compiled([keras.Input([DIM]), keras.layers.Dense(DIM), head], optimizer, loss)

    return Case(build, _features(), np.arange(BATCH) % 7)


def _compiled(layers, optimizer=None, loss=None):
    keras.utils.set_random_seed(3)
    model = keras.Sequential(layers)
    metrics = [tflo.metrics.PrecisionAtK(1), tflo.metrics.RecallAtK(5)]
    loss = (loss or tflo.losses.SampledSoftmaxLoss)()
    optimizer = optimizer() if optimizer else tflo.optimizers.LazyAdam(0.01)
    model.compile(optimizer, loss, metrics=metrics)
    return model


def _sequence_model():
    layers = [
        keras.Input([5], dtype="int64"),
        keras.layers.Embedding(50, DIM, mask_zero=True),
        keras.layers.Dense(DIM),
        tflo.layers.LargeOutput(NUM_CLASSES, tflo.samplers.UniformSampler(32, seed=1)),
    ]
    return _compiled(layers)


def _bag_model():
    layers = [
        keras.Input([5], dtype="int64"),
        tflo.layers.EmbeddingBag(50, DIM),
        tflo.layers.LargeOutput(NUM_CLASSES, tflo.samplers.UniformSampler(32, seed=1)),
    ]
    return _compiled(layers)


def _tower_model():
    features = np.random.default_rng(2).standard_normal((NUM_CLASSES, 4)).astype("float32")
    tower = tflo.layers.ItemTower(features, keras.layers.Dense(DIM))
    head = tflo.layers.LargeOutput(
        NUM_CLASSES, tflo.samplers.UniformSampler(32, seed=1), embeddings=tower
    )
    return _compiled([keras.Input([DIM]), keras.layers.Dense(DIM), head])


def _factored_model():
    head = tflo.layers.FactoredOutput(NUM_CLASSES, learning_rate=0.01)
    return _compiled(
        [keras.Input([DIM]), keras.layers.Dense(DIM), head],
        loss=tflo.losses.SphericalSoftmaxLoss,
    )
