"""Samplers inside a model that trains."""

import keras
import numpy as np
import pytest

from tf_largeout import layers, losses, samplers

NUM_CLASSES = 60
LABELS = np.arange(200) % NUM_CLASSES
FEATURES = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)


def unigram(**kwargs):
    sampler = samplers.UnigramSampler(8, **kwargs)
    sampler.adapt(LABELS)
    return sampler


SAMPLERS = {
    "uniform": samplers.UniformSampler,
    "log_uniform": samplers.LogUniformSampler,
    "unigram": lambda num_sampled, **kwargs: unigram(**kwargs),
}


@pytest.mark.parametrize(
    "name, unique, with_input",
    [
        ("uniform", True, True),
        ("log_uniform", False, True),
        ("unigram", False, True),
        ("unigram", True, False),
    ],
)
def test_a_model_trains_and_goes_on_from_a_file(tmp_path, name, unique, with_input):
    head = layers.LargeOutput(NUM_CLASSES, sampler=SAMPLERS[name](8, unique=unique, seed=1))
    model = keras.Sequential([keras.Input([4])] * with_input + [head])
    model.compile(keras.optimizers.SGD(0.1), losses.SampledSoftmaxLoss())
    model.fit(FEATURES, LABELS, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    for one in (model, again):
        history = one.fit(FEATURES, LABELS, shuffle=False, verbose=0).history["loss"]
        assert np.all(np.isfinite(history))
    for weight, same in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(weight, same)


@pytest.mark.parametrize("name", ["unigram", "lsh"])
def test_the_first_step_of_a_recurrent_encoder_finds_all_variables_initialized(name):
    # Where an initializer cannot be taken out of the trace, this fails at random.
    for _ in range(2):
        sampler = unigram() if name == "unigram" else samplers.LSHSampler(8)
        encoder = keras.layers.GRU(6, return_sequences=True)
        model = keras.Sequential(
            [keras.layers.Embedding(30, 4), encoder, layers.LargeOutput(NUM_CLASSES, sampler)]
        )
        model.compile(keras.optimizers.Adam(), losses.SampledSoftmaxLoss())
        words = np.arange(14).reshape(2, 7)
        assert np.isfinite(model.fit(words, words, verbose=0).history["loss"])


def test_a_bfloat16_model_trains_with_exact_tables():
    head = layers.LargeOutput(NUM_CLASSES, sampler=unigram(), dtype="mixed_bfloat16")
    model = keras.Sequential([keras.Input([4]), head])
    model.compile("sgd", losses.SampledSoftmaxLoss())
    model.fit(FEATURES, LABELS, verbose=0)
    assert {weight.dtype for weight in head.non_trainable_weights} == {"int64"}
