"""Properties of all samplers of the table."""

import inspect
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tests.samplers.sampler_table import (
    OF_ANY_NUMBER,
    SAMPLERS,
    SEARCHES,
    SHORT,
    WITHOUT_A_DRAW,
)
from tests.samplers.stub_layer import StubLayer, built_layer
from tests.slow import slow_but
from tf_largeout import samplers
from tf_largeout.sampler_arguments import BY_NAME

N, DIM, BATCH, M = 400, 8, 12, 24
RNG = np.random.default_rng(3)
FEATURES = RNG.normal(size=(BATCH, DIM)).astype("float32")
LABELS = RNG.integers(-1, N, size=(BATCH, 3))
every_sampler = pytest.mark.parametrize("name", SAMPLERS)
one_of_each_class = pytest.mark.parametrize("name", slow_but(SHORT, SAMPLERS))


def make(name, **kwargs):
    return SAMPLERS[name](N, **{"num_sampled": M, **kwargs})


def make_layer(name, seed=1):
    return built_layer(N, make(name), seed, DIM)


def draws(layer, steps, features=FEATURES, labels=LABELS, graph=False):
    """Returns the samples of `steps` steps: a list of arrays."""

    def step():
        return layer.sampler.sample(tf.constant(features), tf.constant(labels), layer)

    step = tf.function(step) if graph else step
    return [tensor.numpy() for _ in range(steps) for tensor in tf.nest.flatten(step())]


def assert_equal(some, others):
    for one, other in zip(some, others, strict=True):
        np.testing.assert_array_equal(one, other)


def differ(some, others):
    return any(not np.array_equal(one, other) for one, other in zip(some, others, strict=True))


def test_every_public_sampler_and_every_name_is_in_the_table():
    tabled = {name: type(make(name)) for name in SAMPLERS}
    public = harness.public_classes(samplers, samplers.Sampler)
    assert public == {sampler.__name__ for sampler in tabled.values()}
    assert BY_NAME.items() <= tabled.items()


@every_sampler
def test_reported_counts_are_of_the_documented_kind(name):
    layer = make_layer(name)
    sample = layer.sample(LABELS, tf.constant(FEATURES))
    ids, _, counts = getattr(sample, "tail", sample)
    if layer.sampler.counts_are == "probabilities":
        for drawn in np.reshape(ids, [-1, ids.shape[-1]]):
            drawn = drawn[drawn >= 0]
            assert len(np.unique(drawn)) == len(drawn)
        assert np.all(counts <= 1)
    else:
        known = bool(np.any(counts.numpy() != 1))
        assert known == {"draws": True, "none": False}[layer.sampler.counts_are]


@every_sampler
def test_a_sample_has_the_promised_shapes_and_types(name):
    values = make_layer(name).sample(LABELS, tf.constant(FEATURES))
    parts = values if isinstance(values, samplers.HeadAndTail) else [values]
    widths = 0
    for part in parts:
        ids, true_counts, counts = (tensor.numpy() for tensor in part)
        assert ids.dtype == np.int64 and counts.dtype == true_counts.dtype == np.float32
        assert ids.shape[:-1] in ((), (BATCH,)) and counts.shape == ids.shape
        assert true_counts.shape == LABELS.shape
        assert np.all((ids >= -1) & (ids < N)) and np.all(np.isfinite(counts))
        widths += ids.shape[-1]
    assert widths == M or (name in OF_ANY_NUMBER and M / 2 < widths < 2 * M)


@one_of_each_class
def test_equal_seeds_give_equal_draws_and_each_step_another(name):
    first = draws(make_layer(name), 4)
    assert_equal(first, draws(make_layer(name), 4))
    if name not in WITHOUT_A_DRAW:
        assert differ(first, draws(make_layer(name, seed=2), 4))
        assert differ(first[: len(first) // 4], first[-(len(first) // 4) :])


# Tracing takes most of the time; tests that train models trace the other forms.
@pytest.mark.parametrize(
    "name",
    slow_but(["unigram", "inverted_file draws", "kernel_tree, projected", "lsh"], SAMPLERS),
)
def test_a_graph_draws_what_eager_steps_draw(name):
    eager, graph = (draws(make_layer(name), 5, graph=graph) for graph in (False, True))
    for one, other in zip(eager, graph, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6 if one.dtype == np.float32 else 0)


@one_of_each_class
def test_no_gradient_flows_through_a_sampler(name):
    layer, features = make_layer(name), tf.Variable(FEATURES)
    with tf.GradientTape() as tape:
        values = layer.sampler.sample(features, tf.constant(LABELS), layer)
        floats = [value for value in tf.nest.flatten(values) if value.dtype == tf.float32]
        total = tf.add_n([tf.reduce_sum(tf.math.log(value + 1)) for value in floats])
    assert tape.gradient(total, [features, layer.embeddings.value]) == [None] * 2


@one_of_each_class
def test_empty_batches_are_supported(name):
    layer = make_layer(name)
    values = draws(layer, 3, FEATURES[:0], LABELS[:0])
    lengths = {value.shape[0] for value in values}
    assert lengths <= {0, M, M - 6} or (name in OF_ANY_NUMBER and min(lengths) == 0)


@every_sampler
def test_configs_survive_json_and_are_small(name):
    sampler = SAMPLERS[name](100_000, num_sampled=7, seed=3)
    text = json.dumps(keras.saving.serialize_keras_object(sampler))
    assert len(text) < 900
    again = samplers.get(json.loads(text))
    assert type(again) is type(sampler)
    config, signature = sampler.get_config(), inspect.signature(type(sampler).__init__)
    assert config.keys() == signature.parameters.keys() - {"self", "counts"}  # a weight
    assert again.get_config() == config


@one_of_each_class
def test_health_is_json_serializable(name):
    layer = make_layer(name)
    health = layer.sampler.health(layer)
    assert json.loads(json.dumps(health)) == health
    assert bool(health) == (name in SEARCHES)
    with pytest.raises(ValueError, match="not built yet"):
        SAMPLERS[name](100).health(layer)


@one_of_each_class
def test_a_sampler_belongs_to_one_layer(name):
    layer = make_layer(name)
    with pytest.raises(ValueError, match=f"This {type(layer.sampler).__name__} was already"):
        built_layer(N, layer.sampler, dim=DIM)


@one_of_each_class
def test_a_saved_sampler_continues_with_the_same_draws(name, tmp_path):
    layer = StubLayer(N, make(name), dim=DIM)
    model = keras.Sequential([keras.Input([DIM]), layer])
    draws(layer, 3)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras").layers[-1]
    assert_equal(draws(layer, 3), draws(loaded, 3))


@pytest.mark.parametrize("bad", [0, -3, 2.5, True, "many", 2**31])
def test_num_sampled_must_be_a_positive_integer(bad):
    with pytest.raises(ValueError, match="num_sampled"):
        samplers.UniformSampler(bad)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_name_gives_a_sampler_of_at_most_half_of_the_classes(name):
    if name == "unigram":
        with pytest.raises(ValueError, match='"unigram" has no class counts.*counts=.*`adapt'):
            samplers.get(name)
        return
    assert type(samplers.get(name)) is BY_NAME[name]
    assert samplers.get(name).num_sampled == samplers.get(name, 10_000).num_sampled == 1024
    few = samplers.get(name, 20)
    assert few.num_sampled == 10 and (getattr(few, "num_hard", None) or 0) < 10


def test_get_returns_samplers_and_none_unchanged():
    assert samplers.get(None) is None
    sampler = samplers.UniformSampler(5)
    assert samplers.get(sampler) is sampler


@pytest.mark.parametrize("unknown", ["Uniform", keras.losses.MeanSquaredError()])
def test_the_error_of_an_unknown_name_lists_the_known_ones(unknown):
    with pytest.raises(ValueError, match="log_uniform.*uniform'].*Unigram"):
        samplers.get(unknown)


def test_a_class_in_place_of_a_sampler_raises_an_error():
    with pytest.raises(ValueError, match=r"not its class. Pass UniformSampler\(...\)"):
        samplers.get(samplers.UniformSampler)
