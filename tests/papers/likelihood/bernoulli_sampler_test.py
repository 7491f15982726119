"""`BernoulliSampler`: frequency and independence of draws, and the losses that support it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tests.losses import table
from tests.reference import samplers as reference
from tests.samplers.stub_layer import built_layer
from tests.slow import slow_but
from tf_largeout import layers, losses, samplers

COUNTS = np.array([5.0, 0, 3, 1, 0, 400, 2, 2, 30, 9])
N = COUNTS.size


def make_layer(num_sampled, counts=COUNTS, seed=1):
    sampler = samplers.BernoulliSampler(num_sampled, counts=counts)
    return built_layer(len(counts), sampler, seed)


def draws(layer, steps):
    """Returns bool `[steps, num_classes]`: whether a class is in a draw."""

    @tf.function(autograph=False)
    def all_draws():
        return tf.map_fn(
            lambda _: tf.math.bincount(
                tf.cast(layer.sample().sampled_candidates, tf.int32),
                minlength=layer.num_classes,
            ),
            tf.range(steps),
            fn_output_signature=tf.int32,
            parallel_iterations=1,
        )

    found = all_draws().numpy()
    assert found.max() <= 1  # No class is drawn twice.
    return found > 0


@pytest.mark.parametrize("num_sampled", [1, 4, 9, 10])
def test_reported_counts_are_probabilities_that_sum_to_num_sampled(num_sampled):
    layer = make_layer(num_sampled)
    expected = layer.expected_counts().astype("float64")
    np.testing.assert_allclose(expected, reference.bernoulli(COUNTS, num_sampled), rtol=1e-5)
    assert expected.sum() == pytest.approx(num_sampled, rel=1e-6)
    values = layer.sample()
    np.testing.assert_array_equal(
        values.sampled_expected_count, expected[values.sampled_candidates].astype("float32")
    )


@pytest.mark.parametrize("num_sampled", slow_but([5, 9], [2, 5, 9]))
def test_classes_are_drawn_with_their_probabilities_and_independently(num_sampled):
    layer, steps = make_layer(num_sampled), 6000
    b = layer.expected_counts().astype("float64")
    found = draws(layer, steps)
    sigma = np.sqrt(b * (1 - b) / steps)
    assert np.all(np.abs(found.mean(axis=0) - b) <= 5 * sigma)
    both = (found[:, :, None] & found[:, None, :]).mean(axis=0)
    pairs = np.outer(b, b)
    off = np.abs(both - pairs) / np.sqrt(pairs * (1 - pairs) / steps)
    assert np.all(off[~np.eye(N, dtype=bool)] <= 5)


@pytest.mark.slow
def test_many_classes_are_drawn_with_their_probabilities():
    num_classes, num_sampled, steps = 100_000, 200, 300
    counts = 1e6 / (1 + np.arange(num_classes))
    layer = make_layer(num_sampled, counts)
    b = layer.expected_counts().astype("float64")
    assert b.sum() == pytest.approx(num_sampled, rel=1e-5)
    found = np.zeros(num_classes)
    sizes = []
    for _ in range(steps):
        ids = layer.sample().sampled_candidates.numpy()
        assert len(set(ids)) == len(ids)
        found[ids] += 1
        sizes.append(len(ids))
    spread = np.sqrt(np.sum(b * (1 - b)))
    assert np.abs(np.mean(sizes) - num_sampled) <= 5 * spread / np.sqrt(steps)
    assert 0.7 * spread <= np.std(sizes) <= 1.3 * spread
    group = np.arange(num_classes) * 50 // num_classes
    mean = np.bincount(group, b) * steps
    sigma = np.sqrt(np.bincount(group, b * (1 - b)) * steps)
    assert np.all(np.abs(np.bincount(group, found) - mean) <= 5 * sigma)


def test_all_classes_are_drawn_if_num_sampled_is_num_classes():
    values = make_layer(N).sample()
    np.testing.assert_array_equal(values.sampled_candidates, np.arange(N))
    np.testing.assert_array_equal(values.sampled_expected_count, 1)
    np.testing.assert_array_equal(values.true_expected_count, 1)


def test_bernoulli_normalization_over_all_classes_is_the_exact_loss():
    problem = table.Problem()
    sampler = samplers.BernoulliSampler(table.N, counts=np.arange(table.N))
    head = harness.built_head(problem.embeddings, problem.bias, sampler)
    for complement in ("label", "batch"):
        loss = losses.BernoulliNormalizationLoss(complement=complement, reduction="sum")
        found = harness.loss_and_gradients(loss, head, problem.features, problem.labels)
        exact = harness.loss_and_gradients(
            losses.SoftmaxLoss(reduction="sum"), head, problem.features, problem.labels
        )
        for ours, theirs in zip([found[0], *found[1]], [exact[0], *exact[1]], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


SAMPLED_LOSSES = [name for name in table.LOSSES if name != "softmax"]


@pytest.mark.parametrize("name", slow_but(["nce", "bernoulli, batch"], SAMPLED_LOSSES))
def test_every_sampled_loss_supports_it_even_if_nothing_is_drawn(name):
    sampler = samplers.BernoulliSampler(1, counts=np.ones(60), seed=1)
    head = harness.built_head(np.ones((60, 2), "float32"), np.zeros(60), sampler)
    loss, numbers = table.LOSSES[name].loss(), set()
    for _ in range(10):
        value, gradients = harness.loss_and_gradients(loss, head, np.ones((2, 2), "f4"), [3, 5])
        numbers.add(len(head.sampler.sample(None, [[3]], head).sampled_candidates))
        assert np.isfinite(value) and all(np.all(np.isfinite(g)) for g in gradients)
    assert 0 in numbers and len(numbers) > 2


def test_adapt_counts_labels_before_and_after_the_layer_is_built():
    labels = np.repeat(np.arange(N), COUNTS.astype(int))
    before = samplers.BernoulliSampler(3)
    before.adapt(labels)
    after = samplers.BernoulliSampler(3)
    made = [built_layer(N, before), built_layer(N, after)]
    after.adapt(labels)
    for layer in made:
        np.testing.assert_allclose(
            layer.expected_counts(), reference.bernoulli(COUNTS, 3), rtol=1e-5
        )


@pytest.mark.slow  # long training
def test_it_trains_as_the_tail_of_a_search():
    tail = samplers.BernoulliSampler(20, counts=np.arange(60) + 1)
    head = layers.LargeOutput(60, samplers.TopKSampler(24, num_hard=4, tail=tail))
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(4), head])
    model.compile("sgd", losses.BernoulliNormalizationLoss(complement="batch"))
    x, y = np.random.default_rng(0).normal(size=(200, 4)), np.arange(200) % 60
    assert np.isfinite(model.fit(x, y, verbose=0).history["loss"])


def test_the_error_of_missing_counts_has_a_remedy():
    layer = built_layer(N, samplers.BernoulliSampler(3))
    with pytest.raises(ValueError, match="BernoulliSampler has no class counts.*`counts`"):
        layer.sample()


def test_a_num_sampled_above_num_classes_raises_an_error():
    with pytest.raises(ValueError, match="num_sampled=11, num_classes=10. Lower"):
        make_layer(11)


@pytest.mark.slow
@pytest.mark.parametrize("num_sampled", [1, 2, 3])
def test_extremely_uneven_counts_give_the_expected_number_of_draws(num_sampled):
    layer = make_layer(num_sampled, np.array([1e300, 1, 1]))
    assert layer.expected_counts().sum() == pytest.approx(num_sampled, rel=1e-6)
    assert draws(layer, 50)[:, 0].all()
