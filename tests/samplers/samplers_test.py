"""What every static sampler promises: one table, each member one line."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.reference import samplers as reference
from tests.samplers.stub_layer import built_layer
from tf_largeout import samplers


def counts_of(num_classes):
    """Rising counts, some of them zero."""
    return np.where(np.arange(num_classes) % 7 == 3, 0, np.arange(num_classes) % 1000)


def unigram(num_classes, **kwargs):
    return samplers.UnigramSampler(counts=counts_of(num_classes), **kwargs)


# name: (constructor for a number of classes, its distribution)
SAMPLERS = {
    "uniform": (lambda n, **kw: samplers.UniformSampler(**kw), reference.uniform),
    "log_uniform": (lambda n, **kw: samplers.LogUniformSampler(**kw), reference.log_uniform),
    "unigram": (unigram, lambda n: reference.unigram(counts_of(n))),
    "unigram^0.75": (
        lambda n, **kw: unigram(n, distortion=0.75, **kw),
        lambda n: reference.unigram(counts_of(n), 0.75),
    ),
}
every_sampler = pytest.mark.parametrize("name", SAMPLERS)
both_ways = pytest.mark.parametrize("unique", [False, True])


def make_layer(name, num_classes, seed=1, **kwargs):
    return built_layer(num_classes, SAMPLERS[name][0](num_classes, **kwargs), seed)


@tf.function
def draws(layer, steps):
    """The classes of so many steps, int64 [steps, num_sampled]."""
    return tf.map_fn(
        lambda _: layer.sample().sampled_candidates,
        tf.range(steps),
        fn_output_signature=tf.int64,
        parallel_iterations=1,
    )


@both_ways
@every_sampler
@pytest.mark.parametrize(
    "num_classes, num_sampled, steps",
    [(10, 4, 3000), (1000, 100, 2000), (1_000_000, 1000, 300)],
)
def test_reported_counts_are_the_counted_ones(name, unique, num_classes, num_sampled, steps):
    layer = make_layer(name, num_classes, num_sampled=num_sampled, unique=unique)
    ids = draws(layer, steps).numpy()
    assert ids.shape == (steps, num_sampled)
    assert not unique or np.all(np.diff(np.sort(ids), axis=1) > 0)
    counted = np.bincount(ids.reshape(-1), minlength=num_classes)
    expected = layer.expected_counts().astype(np.float64)
    assert expected.sum() == pytest.approx(num_sampled, rel=1e-6)
    assert np.all(expected > 0)
    # Class by class, and in 50 stretches of ids, where rare classes add up.
    for group in (np.arange(num_classes), np.arange(num_classes) * 50 // num_classes):
        mean = np.bincount(group, expected) * steps
        spread = expected * (1 - (expected if unique else expected / num_sampled))
        sigma = np.sqrt(np.bincount(group, spread) * steps)
        off = np.abs(np.bincount(group, counted) - mean)
        often = mean > 10
        assert np.all(off[often] <= 5 * sigma[often] + 1e-6 * mean[often])
    q = SAMPLERS[name][1](num_classes)
    oracle = reference.expected_counts(q, num_sampled, unique)
    np.testing.assert_allclose(expected, oracle, rtol=1e-5)


@every_sampler
def test_every_class_comes_once_where_all_are_drawn(name):
    for num_classes in (1, 2, 13):
        values = make_layer(name, num_classes + 1, num_sampled=num_classes + 1).sample()
        ids = np.sort(values.sampled_candidates)
        np.testing.assert_array_equal(ids, np.arange(num_classes + 1))
        np.testing.assert_array_equal(values.sampled_expected_count, 1)
        np.testing.assert_array_equal(values.true_expected_count, 1)


@both_ways
@pytest.mark.parametrize("name", ["uniform", "log_uniform"])
def test_one_class_is_always_drawn(name, unique):
    values = make_layer(name, 1, num_sampled=1, unique=unique).sample()
    assert [v.numpy().tolist() for v in values] == [[0], [[1, 1]], [1]]


@both_ways
@every_sampler
def test_same_seed_same_draws_and_each_step_another(name, unique):
    def three_steps(seed):
        layer = make_layer(name, 5000, seed=seed, num_sampled=200, unique=unique)
        return np.stack([layer.sample().sampled_candidates for _ in range(3)])

    first = three_steps(1)
    np.testing.assert_array_equal(first, three_steps(1))
    assert not np.array_equal(first, three_steps(2))
    assert not np.array_equal(first[0], first[1])


@every_sampler
def test_no_gradient_flows_through_a_sampler(name):
    layer = make_layer(name, 50, num_sampled=5)
    features = tf.Variable(tf.ones([1, 3]))
    with tf.GradientTape() as tape:
        values = layer.sampler.sample(features, [[0]], layer)
        total = tf.reduce_sum(tf.math.log(values.sampled_expected_count))
    assert tape.gradient(total, features) is None


@every_sampler
def test_labels_out_of_range_are_named(name):
    layer = make_layer(name, 50, num_sampled=5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="labels must be .*50.*got 50"):
        layer.sample([[3], [50]])


@every_sampler
def test_empty_batches_are_sampled_for(name):
    values = make_layer(name, 50, num_sampled=5).sample(np.zeros([0, 2]))
    assert values.true_expected_count.shape == (0, 2)
    assert values.sampled_candidates.shape == (5,)


@every_sampler
def test_more_distinct_samples_than_classes_name_both(name):
    with pytest.raises(ValueError, match="num_sampled=12, num_classes=11.*unique=False"):
        make_layer(name, 11, num_sampled=12)
    make_layer(name, 11, num_sampled=12, unique=False).sample()


@every_sampler
def test_configs_survive_json_and_stay_small(name):
    sampler = SAMPLERS[name][0](100_000, num_sampled=7, unique=False, seed=3)
    text = json.dumps(keras.saving.serialize_keras_object(sampler))
    assert len(text) < 400
    again = samplers.get(json.loads(text))
    assert type(again) is type(sampler)
    assert again.get_config() == sampler.get_config()


@every_sampler
def test_a_sampler_belongs_to_one_layer(name):
    layer = make_layer(name, 50, num_sampled=5)
    with pytest.raises(ValueError, match="a sampler of its own"):
        built_layer(50, layer.sampler)


@both_ways
@every_sampler
def test_tf_losses_take_the_sampled_values(name, unique):
    layer = make_layer(name, 50, num_sampled=5, unique=unique)
    labels = tf.constant([[1], [2]], tf.int64)
    loss = tf.nn.sampled_softmax_loss(
        tf.ones([50, 3]),
        tf.zeros([50]),
        labels,
        tf.ones([2, 3]),
        num_sampled=5,
        num_classes=50,
        sampled_values=layer.sample(labels),
    )
    assert np.all(np.isfinite(loss))


@pytest.mark.parametrize("bad", [0, -3, 2.5, True, "many", 2**31])
def test_num_sampled_must_be_a_positive_integer(bad):
    with pytest.raises(ValueError, match="num_sampled"):
        samplers.UniformSampler(bad)


def test_names_configs_samplers_and_none_are_understood():
    assert samplers.get(None) is None
    sampler = samplers.UniformSampler(5)
    assert samplers.get(sampler) is sampler
    assert isinstance(samplers.get("uniform"), samplers.UniformSampler)
    assert isinstance(samplers.get("log_uniform"), samplers.LogUniformSampler)


@pytest.mark.parametrize("unknown", ["Uniform", 3, keras.losses.MeanSquaredError()])
def test_unknown_names_list_the_known_ones(unknown):
    with pytest.raises(ValueError, match="log_uniform.*uniform.*unigram"):
        samplers.get(unknown)
