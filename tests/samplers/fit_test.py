"""Samplers inside a model that trains."""

import keras
import numpy as np
import pytest

from tests.samplers.sampler_table import SAMPLERS
from tf_largeout import layers, losses, optimizers, samplers

NUM_CLASSES = 60
LABELS = np.arange(200) % NUM_CLASSES
FEATURES = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)


def unigram():
    sampler = samplers.UnigramSampler(8)
    sampler.adapt(LABELS)
    return sampler


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unigram", "kernel_tree"])
def test_a_resumed_run_of_a_model_built_by_its_first_step_is_bit_identical(tmp_path, name):
    sampler = SAMPLERS[name](NUM_CLASSES, num_sampled=8, seed=1)
    model = keras.Sequential([layers.LargeOutput(NUM_CLASSES, sampler=sampler)])
    model.compile(optimizers.LazyAdam(0.01), losses.SampledSoftmaxLoss())
    model.fit(FEATURES, LABELS, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    for one in (model, again):
        history = one.fit(FEATURES, LABELS, shuffle=False, verbose=0).history["loss"]
        assert np.all(np.isfinite(history))
    for weight, same in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(weight, same, err_msg=weight.path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unigram", "lsh"])
def test_variables_are_initialized_before_the_first_step_of_a_recurrent_encoder(name):
    # If an initializer cannot be lifted out of the trace, this fails at random.
    sampler = unigram() if name == "unigram" else samplers.LSHSampler(8)
    encoder = keras.layers.GRU(6, return_sequences=True)
    model = keras.Sequential(
        [keras.layers.Embedding(30, 4), encoder, layers.LargeOutput(NUM_CLASSES, sampler)]
    )
    model.compile(keras.optimizers.Adam(), losses.SampledSoftmaxLoss())
    words = np.arange(14).reshape(2, 7)
    assert np.isfinite(model.fit(words, words, verbose=0).history["loss"])


@pytest.mark.slow  # long training
def test_a_bfloat16_model_trains_with_exact_tables():
    head = layers.LargeOutput(NUM_CLASSES, sampler=unigram(), dtype="mixed_bfloat16")
    model = keras.Sequential([keras.Input([4]), head])
    model.compile("sgd", losses.SampledSoftmaxLoss(), run_eagerly=True)
    model.fit(FEATURES, LABELS, verbose=0)
    assert {weight.dtype for weight in head.non_trainable_weights} == {"int64", "float64"}
