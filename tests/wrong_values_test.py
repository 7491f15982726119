"""Wrong values of arguments raise a ValueError that says what came and what was expected."""

import functools

import keras
import numpy as np
import pytest

import tf_largeout as tflo

N, DIM = 12, 3
ROWS = np.random.default_rng(0).normal(size=(N, DIM)).astype("float32")
QUERIES = ROWS[:2]
Sampler = functools.partial(tflo.samplers.LSHSampler, 8)


@functools.cache
def model():
    head = tflo.layers.LargeOutput(N, "uniform", embeddings_initializer=ROWS)
    return keras.Sequential([keras.Input([DIM]), head])


def top_k(features=QUERIES, k=2, **arguments):
    return model().layers[-1].top_k(features, k, **arguments)


NUMBERS = {
    "initial_accumulator_value": ("LazyAdagrad", "RowwiseAdagrad"),
    "epsilon": ("LazyAdagrad", "RowwiseAdagrad", "LazyAdam"),
    "weight_decay": ("LazyAdagrad", "RowwiseAdagrad", "LazyAdam", "LazySGD"),
    "learning_rate": ("LazyAdagrad", "RowwiseAdagrad", "LazyAdam", "LazySGD"),
    "beta_1": ("LazyAdam",),
    "beta_2": ("LazyAdam",),
    "momentum": ("LazySGD",),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_optimizers_check_their_numbers(name):
    for cls in NUMBERS[name]:
        make = getattr(tflo.optimizers, cls)
        make(**{name: 0.0})
        for value in (-0.5, float("nan"), float("inf")):
            with pytest.raises(ValueError, match=f"`{name}` must be a number of at least 0"):
                make(**{name: value})
        with pytest.raises(ValueError):  # Keras checks the type of learning rates
            make(**{name: "x"})


CASES = {
    "beta": (lambda: tflo.optimizers.LazyAdam(beta_2=1), "below 1. Received: beta_2=1 "),
    "nesterov": (lambda: tflo.optimizers.LazySGD(nesterov=0.9), "`nesterov` must be True or"),
    "absolute": (lambda: top_k(absolute="x"), "`absolute` must be True, False or None.*'x'"),
    "initializer": (
        lambda: tflo.layers.EmbeddingBag(4, 2, embeddings_initializer=0),
        "initializer identifier: 0",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_value_is_refused(case):
    function, message = CASES[case]
    with pytest.raises(ValueError, match=message):
        function()
