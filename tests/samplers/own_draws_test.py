"""Static samplers with `shared=False`: each example has its own draws."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tests.losses import table
from tests.reference import losses as loss_reference
from tests.reference import partition
from tests.reference import samplers as reference
from tests.samplers.sampler_table import OWN, SAMPLERS, STATIC, counts_of
from tests.samplers.stub_layer import built_layer
from tests.slow import slow_but
from tf_largeout import layers, losses, optimizers, samplers
from tf_largeout.ops.sampling_ops import own_log_uniform_draws

BATCH = 4000


def drawn(name, num_classes, num_sampled):
    """Returns the layer, and the ids and counts for a batch of labels 0."""
    layer = built_layer(num_classes, OWN[name](num_classes, num_sampled=num_sampled), 3)
    values = layer.sample(np.zeros([BATCH, 1], np.int64))
    return layer, *(values[part].numpy() for part in (0, 2))


def assert_rate(found, probability):
    """Checks a bool array against a probability, within 5 sigma."""
    sigma = np.sqrt(probability * (1 - probability) / found.size)
    assert abs(found.mean() - probability) < 5 * sigma


@pytest.mark.parametrize("num_classes", slow_but([50], [2, 50, 3000]))
@pytest.mark.parametrize("name", STATIC)
def test_reported_counts_match_independent_draws(name, num_classes):
    layer, ids, counts = drawn(f"{name}, own", num_classes, num_sampled=20)
    q = STATIC[name][1](num_classes)
    expected = layer.expected_counts()
    np.testing.assert_allclose(expected, reference.expected_counts(q, 20, False), rtol=1e-5)
    np.testing.assert_array_equal(counts, expected[ids])
    times = np.bincount(ids.reshape(-1), minlength=num_classes)
    mean = ids.size * q
    assert np.all(np.abs(times - mean)[mean > 10] <= 5 * np.sqrt(mean)[mean > 10])
    # Two draws of an example, and those of two examples, are equal by chance only.
    assert_rate(ids[:, 0] == ids[:, 1], np.sum(q**2))
    assert_rate(ids[::2, 0] == ids[1::2, 0], np.sum(q**2))


def test_bernoulli_draws_of_an_example_are_distinct_and_have_their_probabilities():
    layer, ids, counts = drawn("bernoulli, own", 40, num_sampled=12)
    b = layer.expected_counts()
    np.testing.assert_array_equal(counts, np.where(ids < 0, 1, b[ids]))
    is_drawn = np.sum(ids[:, :, np.newaxis] == np.arange(40), axis=1)
    assert is_drawn.max() == 1
    assert np.all(np.abs(is_drawn.mean(axis=0) - b) < 5 * np.sqrt(b * (1 - b) / BATCH))
    other = np.corrcoef(is_drawn[::2, 20], is_drawn[1::2, 20])[0, 1]
    assert abs(other) < 5 / np.sqrt(BATCH / 2)
    whole = built_layer(7, OWN["bernoulli, own"](7, num_sampled=7)).sample([[1], [2]])
    np.testing.assert_array_equal(whole.sampled_candidates, [range(7)] * 2)


def test_log_uniform_draws_invert_the_cumulative_distribution():
    for num_classes in (1, 2, 1000):
        uniform = tf.random.stateless_uniform([30, 40], [3, 4], dtype=tf.float64, alg="philox")
        ids = own_log_uniform_draws(30, tf.constant([3, 4], tf.int64), num_classes, 40)
        expected = reference.by_inverse(reference.log_uniform(num_classes), uniform.numpy())
        np.testing.assert_array_equal(ids, expected)


ESTIMATES = {
    "uniform, own": losses.SampledSoftmaxLoss,
    "unigram, own": losses.ImportanceNormalizationLoss,
    "bernoulli, own": losses.BernoulliNormalizationLoss,
}


@pytest.mark.parametrize("name", ESTIMATES)
def test_the_partition_function_of_each_example_has_the_mean_and_variance_of_the_paper(name):
    """Many draws are labels of their example, which must not count twice.

    Barber & Botev 2016: no bias, and the variances of equations 18 and 21.
    """
    problem = table.Problem(np.array([[3], [9], [0], [36], [7], [12]]))
    sampler = OWN[name](table.N, num_sampled=6, seed=1)
    head = harness.built_head(problem.embeddings, problem.bias, sampler)
    features, labels = (
        np.repeat(part, BATCH, 0) for part in (problem.features, problem.labels)
    )
    loss = ESTIMATES[name](reduction=None)
    found = np.exp(np.float64(loss(labels, head(features, training=True)))).reshape(-1, BATCH)
    exact = np.exp(problem.expected(lambda *args: loss_reference.full_softmax(*args[:4])))
    sigma = found.std(axis=1) / np.sqrt(BATCH)
    assert np.all(np.abs(found.mean(axis=1) - exact) < 5 * sigma)
    assert np.all(sigma < 0.1 * exact)
    logits = np.float64(problem.features) @ np.float64(problem.embeddings).T + problem.bias
    logits -= np.take_along_axis(logits, problem.labels, axis=1)  # `found` is Z / exp(o_y)
    terms = np.where(np.arange(table.N) == problem.labels, 0, np.exp(logits))
    if name == "bernoulli, own":
        b = reference.bernoulli(counts_of(table.N), 6)
        variances = [partition.bernoulli_variance(z, b) for z in terms]
    else:
        q = STATIC[name.removesuffix(", own")][1](table.N)
        variances = [partition.importance_variance(z, q, 6) for z in terms]
    squares = (found - exact[:, np.newaxis]) ** 2
    sigma = squares.std(axis=1) / np.sqrt(BATCH)
    assert np.all(np.abs(squares.mean(axis=1) - variances) < 5 * sigma)
    assert np.all(sigma < 0.5 * np.array(variances))


@pytest.mark.parametrize(
    "name", slow_but(["nce", "absolute softmax"], [n for n in table.LOSSES if n != "softmax"])
)
def test_a_loss_is_that_of_each_example_with_its_draws_as_a_shared_sample(name):
    problem, case = table.Problem(), table.LOSSES[name]
    kind = "bernoulli, own" if name.startswith("bernoulli") else "unigram, own"
    head = harness.built_head(
        problem.embeddings, problem.bias, OWN[kind](table.N, num_sampled=12, seed=1)
    )
    values = head.sampler.sample(None, problem.labels, head)
    head.sampler = harness.FixedSampler(values)
    found = case.loss(reduction=None)(problem.labels, head(problem.features, training=True))
    if "batch" in name:
        assert np.all(np.isfinite(found))  # its other classes are those of the whole batch
        return
    for row, (labels, ids, true_count, count) in enumerate(
        zip(problem.labels, *(part.numpy() for part in values), strict=True)
    ):
        rows = slice(row, row + 1)
        kept = ids >= 0
        shared = harness.sampled_values(ids[kept], true_count[None], count[kept])
        head.sampler = harness.FixedSampler(shared)
        alone = case.loss(reduction=None)(
            labels[None], head(problem.features[rows], training=True)
        )
        np.testing.assert_allclose(found[rows], alone, rtol=1e-5, atol=1e-6)


def test_only_the_rows_of_labels_and_draws_are_updated():
    head = layers.LargeOutput(5000, samplers.UniformSampler(3, seed=1, shared=False))
    model = keras.Sequential([keras.Input([4]), head])
    model.compile(optimizers.LazyAdam(0.1), losses.SampledSoftmaxLoss())
    before = head.embeddings.numpy()
    x = np.random.default_rng(0).normal(size=(16, 4))
    model.fit(x, np.arange(16), batch_size=8, verbose=0)
    changed = np.any(head.embeddings.numpy() != before, axis=1)
    assert changed[:16].all() and 16 + 40 < changed.sum() <= 16 + 2 * 8 * 3


def test_labels_out_of_range_and_missing_counts_raise_an_error():
    for name in STATIC:
        layer = built_layer(50, OWN[f"{name}, own"](50, num_sampled=5))
        with pytest.raises(tf.errors.InvalidArgumentError, match="labels must be .*50.*got 50"):
            layer.sample([[3], [50]])
    for empty in (samplers.UnigramSampler, samplers.BernoulliSampler):
        layer = built_layer(50, empty(5, shared=False))
        with pytest.raises(ValueError, match="has no class counts"):
            layer.sample()


@pytest.mark.parametrize("name", ["uniform", "log_uniform", "unigram"])
def test_distinct_draws_for_each_example_raise_an_error(name):
    with pytest.raises(ValueError, match="Received: shared=False, unique=True. Leave `unique`"):
        SAMPLERS[name](50, num_sampled=5, shared=False, unique=True)


@pytest.mark.parametrize("name", ["uniform, own", "bernoulli, own"])
def test_own_draws_as_a_tail_raise_an_error(name):
    with pytest.raises(ValueError, match="`StaticSampler`.*Create it with `shared=True`"):
        samplers.TopKSampler(12, num_hard=4, tail=OWN[name](50))


def test_a_subclass_without_own_draws_raises_an_error():
    class Shared(samplers.StaticSampler):
        def draw_shared(self, labels, seed):
            return samplers.UniformSampler.draw_shared(self, labels, seed)

    layer = built_layer(50, Shared(5, shared=False))
    with pytest.raises(NotImplementedError, match="Shared must implement `draw_own`, or"):
        layer.sample()


@pytest.mark.parametrize("bad", [0, None, "yes"])
def test_a_value_of_shared_that_is_not_a_bool_raises_an_error(bad):
    with pytest.raises(ValueError, match="`shared`"):
        samplers.UniformSampler(5, shared=bad)


def test_a_subclass_without_the_argument_shared_is_created_from_its_config():
    class Own(samplers.UniformSampler):
        def __init__(self, num_sampled=4, unique=True, seed=None):
            super().__init__(num_sampled, unique, seed)

    copy = Own.from_config(Own(5).get_config())
    assert (copy.num_sampled, copy.shared) == (5, True)
