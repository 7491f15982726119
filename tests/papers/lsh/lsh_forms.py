"""A table of all forms of `LSHSampler`, and models with them."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tf_largeout import layers, losses, optimizers, samplers

N, DIM, BATCH, M = 400, 8, 12, 24
RNG = np.random.default_rng(3)
EMBEDDINGS = RNG.normal(size=(N, DIM)).astype("float32")
FEATURES = RNG.normal(size=(BATCH, DIM)).astype("float32")
LABELS = harness.pad([[3], [3, 5], [0], [], [7], [1], [2], [49], [8], [9, 11, 12], [1], [399]])

# Keywords of `make`: of the sampler, and of its `HashTableConfig`.
FORMS = {
    "embedding": {"form": "walk"},
    "label": {"form": "walk", "query": "label"},
    "dwta": {"hash": "dwta"},
    "frequent": {"hash": "wta", "form": "frequent"},
    "both": {"form": "walk", "query": "both"},
    "frequent label": {"query": "label", "form": "frequent"},
    "shared": {"form": "pool"},
    "shared label": {"form": "pool", "query": "label"},
    "shared both": {"form": "pool", "query": "both"},
    "shared dwta": {"form": "pool", "hash": "dwta"},
    "head": {"num_hard": 6},
    "head label": {"num_hard": 6, "query": "label", "hash": "dwta", "tail": "log_uniform"},
}
OF_TABLES = inspect.signature(samplers.HashTableConfig).parameters
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
own_forms = {
    name: f for name, f in FORMS.items() if f.get("form") != "pool" and "num_hard" not in f
}
every_own_form = pytest.mark.parametrize("form", own_forms.values(), ids=own_forms)


def make(form, num_sampled=M, **kwargs):
    return lsh_sampler(num_sampled, **{"seed": 1, **form, **kwargs})


def lsh_sampler(num_sampled=M, tables=None, **arguments):
    """Returns an `LSHSampler`; the arguments of its `HashTableConfig` are keywords too."""
    given = {name: arguments.pop(name) for name in OF_TABLES if name in arguments}
    return samplers.LSHSampler(num_sampled, **arguments, tables=given or tables)


def head_of(sampler, embeddings=EMBEDDINGS):
    return harness.built_head(embeddings, np.zeros(len(embeddings), "float32"), sampler)


def sample(head, features=FEATURES, labels=LABELS):
    return head.sampler.sample(tf.constant(features), tf.constant(labels), head)


def model_of(form, num_classes=N, **kwargs):
    keras.utils.set_random_seed(1)
    head = layers.LargeOutput(num_classes, make(form, **kwargs))
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(optimizers.LazyAdam(0.01), losses.SampledSoftmaxLoss())
    model.optimizer.build(model.trainable_variables)  # Otherwise each step is traced twice.
    return model


def fit(model, epochs=3, features=FEATURES, labels=LABELS):
    history = model.fit(
        features, labels, batch_size=4, epochs=epochs, shuffle=False, verbose=0
    ).history["loss"]
    assert np.isfinite(history).all()
    return history


def state_of(head):
    return head.sampler_rebuild_state.numpy().tolist()
