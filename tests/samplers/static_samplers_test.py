"""Properties of all static samplers of the table."""

import numpy as np
import pytest
import tensorflow as tf

from tests.reference import samplers as reference
from tests.samplers.sampler_table import STATIC
from tests.samplers.stub_layer import built_layer
from tests.slow import slow_but

every_static_sampler = pytest.mark.parametrize("name", STATIC)
both_ways = pytest.mark.parametrize("unique", [False, True])


def make_layer(name, num_classes, seed=1, **kwargs):
    return built_layer(num_classes, STATIC[name][0](num_classes, **kwargs), seed)


@tf.function(autograph=False)
def draws(layer, steps):
    """Returns the sampled classes, int64 [steps, num_sampled]."""
    return tf.map_fn(
        lambda _: layer.sample().sampled_candidates,
        tf.range(steps),
        fn_output_signature=tf.int64,
        parallel_iterations=1,
    )


# Few classes, most of them drawn; some; and so many that tables need 64 bits.
FEW, SOME, MANY = (10, 4, 3000), (1000, 100, 2000), (1_000_000, 1000, 300)


@pytest.mark.parametrize(
    "name, unique, num_classes, num_sampled, steps",
    slow_but(
        [
            *((name, True, *FEW) for name in STATIC),
            *((name, False, *SOME) for name in STATIC),
        ],
        [
            (name, unique, *sizes)
            for name in STATIC
            for unique in [False, True]
            for sizes in [FEW, SOME, MANY]
        ],
    ),
)
def test_reported_counts_match_the_draws(name, unique, num_classes, num_sampled, steps):
    layer = make_layer(name, num_classes, num_sampled=num_sampled, unique=unique)
    ids = draws(layer, steps).numpy()
    assert ids.shape == (steps, num_sampled)
    assert not unique or np.all(np.diff(np.sort(ids), axis=1) > 0)
    counted = np.bincount(ids.reshape(-1), minlength=num_classes)
    expected = layer.expected_counts().astype(np.float64)
    assert expected.sum() == pytest.approx(num_sampled, rel=1e-6)
    assert np.all(expected > 0)
    # For each class, and for 50 ranges of ids, which sum over rare classes.
    for group in (np.arange(num_classes), np.arange(num_classes) * 50 // num_classes):
        mean = np.bincount(group, expected) * steps
        spread = expected * (1 - (expected if unique else expected / num_sampled))
        sigma = np.sqrt(np.bincount(group, spread) * steps)
        off = np.abs(np.bincount(group, counted) - mean)
        often = mean > 10
        assert np.all(off[often] <= 5 * sigma[often] + 1e-6 * mean[often])
    q = STATIC[name][1](num_classes)
    oracle = reference.expected_counts(q, num_sampled, unique)
    np.testing.assert_allclose(expected, oracle, rtol=1e-5)


@every_static_sampler
def test_every_class_is_drawn_once_if_num_sampled_is_num_classes(name):
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


@every_static_sampler
def test_labels_out_of_range_raise_an_error(name):
    layer = make_layer(name, 50, num_sampled=5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="labels must be .*50.*got 50"):
        layer.sample([[3], [50]])


@every_static_sampler
def test_more_distinct_samples_than_classes_raise_an_error(name):
    with pytest.raises(ValueError, match="num_sampled=12, num_classes=11.*unique=False"):
        make_layer(name, 11, num_sampled=12)
    make_layer(name, 11, num_sampled=12, unique=False).sample()


@pytest.mark.slow
@both_ways
@every_static_sampler
def test_losses_of_tf_accept_the_sampled_values(name, unique):
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
