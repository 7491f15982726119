"""`SoftmaxSampler`: draws, their frequencies, and theorem 2.1 of Blanc & Rendle."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tests.losses import table
from tests.reference import samplers as reference
from tests.slow import slow_but
from tf_largeout import layers, losses, samplers
from tf_largeout.papers.kernel_tree import softmax_sampler

N, DIM, M = 23, 4, 6
RNG = np.random.default_rng(2)
ROWS = RNG.normal(size=(N, DIM)).astype("float32")
BIAS = RNG.normal(size=N).astype("float32")
FEATURES = RNG.normal(size=(3, DIM)).astype("float32")
LABELS = np.array([[3, -1], [5, 7], [-1, -1]])
LOGITS = FEATURES.astype("float64") @ ROWS.T + BIAS
DISTRIBUTIONS = ["softmax", "absolute_softmax", "quadratic", "quartic"]
every_distribution = pytest.mark.parametrize("distribution", DISTRIBUTIONS)


def sampled(distribution, features=FEATURES, labels=LABELS, num_sampled=M, **kwargs):
    sampler = samplers.SoftmaxSampler(num_sampled, distribution, seed=5, **kwargs)
    head = harness.built_head(ROWS, BIAS, sampler)
    return [value.numpy() for value in sampler.sample(features, labels, head)]


@every_distribution
def test_reported_counts_match_the_draws(distribution):
    copies = 4000
    ids, true_counts, counts = sampled(
        distribution, np.repeat(FEATURES, copies, 0), np.repeat(LABELS, copies, 0)
    )
    for row, labels in enumerate(LABELS):
        q = reference.by_logits(LOGITS[row], labels, distribution)
        of_row = slice(row * copies, (row + 1) * copies)
        np.testing.assert_allclose(counts[of_row], M * q[ids[of_row]], rtol=1e-4)
        found = np.bincount(ids[of_row].reshape(-1), minlength=N)
        sigma = np.sqrt(copies * M * q * (1 - q))
        assert np.all(np.abs(found - copies * M * q) <= 5 * sigma)
        for label, count in zip(labels, true_counts[row * copies], strict=True):
            own = reference.by_logits(LOGITS[row], [], distribution)[label]
            others = reference.by_logits(LOGITS[row], [], distribution)[q > 0].sum()
            assert count == pytest.approx(M * own / others if label >= 0 else 1, rel=1e-4)


@every_distribution
def test_draws_do_not_depend_on_the_block_size(distribution, monkeypatch):
    at_once = sampled(distribution)
    monkeypatch.setattr(softmax_sampler, "_NUMBERS_AT_ONCE", 2 * N)
    for one, other in zip(at_once, sampled(distribution), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@every_distribution
def test_logits_whose_powers_overflow_give_correct_draws(distribution):
    ids, true_counts, counts = sampled(distribution, 1e30 * FEATURES)
    assert np.all((ids >= 0) & (ids < N)) and not np.isin(ids[1], LABELS[1]).any()
    assert np.all(np.isfinite(np.log(counts))) and np.all(np.isfinite(np.log(true_counts)))


@every_distribution
def test_an_example_with_all_classes_as_labels_has_no_negatives(distribution):
    labels = np.tile(np.arange(N), (3, 1))
    ids, true_counts, counts = sampled(distribution, labels=labels)
    np.testing.assert_array_equal(ids, -1)
    np.testing.assert_array_equal(true_counts, 1)
    np.testing.assert_array_equal(counts, 1)


def test_class_embeddings_that_are_not_numbers_raise_an_error():
    sampler = samplers.SoftmaxSampler(M)
    head = harness.built_head(np.full((N, DIM), np.nan), BIAS, sampler)
    with pytest.raises(tf.errors.InvalidArgumentError, match="SoftmaxSampler draws by must be"):
        sampler.sample(FEATURES, LABELS, head)


def mean_gradient(loss_class, sampler, label, copies=4000):
    """Returns the mean gradient by the logits of one example over draws, and its sigma.

    One step has all draws, each for an example whose features are the logits.
    """
    head = harness.built_head(np.eye(N, dtype="float32"), None, sampler)
    features = np.tile(LOGITS[0].astype("float32"), (copies, 1))
    labels = np.full([copies, 1], label)
    _, (found, _) = harness.loss_and_gradients(
        loss_class(reduction="sum"), head, features, labels
    )
    found = found.astype("float64")
    return found.mean(axis=0), found.std(axis=0) / np.sqrt(copies)


def mean_gradient_of_shared_draws(loss_class, sampler, label, steps=4000):
    """The same over steps, for samplers whose draws all examples of a step share."""
    head, loss = harness.built_head(ROWS, BIAS, sampler), loss_class()

    def gradient(_):
        with tf.GradientTape() as tape:
            value = loss([[label]], head(FEATURES[:1], training=True))
        return tf.convert_to_tensor(tape.gradient(value, head.bias.value))

    @tf.function(autograph=False)
    def gradients():
        return tf.map_fn(gradient, tf.range(steps), tf.float32, parallel_iterations=1)

    found = gradients().numpy().astype("float64")
    return found.mean(axis=0), found.std(axis=0) / np.sqrt(steps)


def full_gradient(weights, label):
    return weights / weights.sum() - (np.arange(N) == label)


def is_unbiased(found, sigma, expected):
    return np.all(np.abs(found - expected) <= 5 * sigma + 1e-6)


OF_THEOREM = int(np.argsort(LOGITS[0])[-3])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_softmax_draws_give_an_unbiased_gradient_of_sampled_softmax(seed):
    """Theorem 2.1 of Blanc & Rendle 2018."""
    label, loss = OF_THEOREM, losses.SampledSoftmaxLoss
    expected = full_gradient(np.exp(LOGITS[0]), label)
    by_softmax = mean_gradient(loss, samplers.SoftmaxSampler(3, seed=seed), label)
    assert is_unbiased(*by_softmax, expected)
    other = samplers.SoftmaxSampler(3, "quadratic", seed=seed)
    assert not is_unbiased(*mean_gradient(loss, other, label), expected)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices")
def test_uniform_draws_give_a_biased_gradient_of_sampled_softmax(seed):
    label, uniform = OF_THEOREM, samplers.UniformSampler(3, unique=False, seed=seed)
    found = mean_gradient_of_shared_draws(losses.SampledSoftmaxLoss, uniform, label)
    assert not is_unbiased(*found, full_gradient(np.exp(LOGITS[0]), label))


def test_absolute_softmax_draws_give_an_unbiased_gradient_of_absolute_softmax():
    label, loss = 3, losses.AbsoluteSoftmaxLoss
    expected = full_gradient(np.exp(np.abs(LOGITS[0])), label) * np.sign(LOGITS[0])
    sampler = samplers.SoftmaxSampler(3, "absolute_softmax", seed=1)
    assert is_unbiased(*mean_gradient(loss, sampler, label), expected)
    assert not is_unbiased(
        *mean_gradient(loss, samplers.SoftmaxSampler(3, seed=1), label), expected
    )


@pytest.mark.parametrize(
    "name",
    slow_but(table.CLASSES[1:], [name for name in table.LOSSES if name != "softmax"]),
)
def test_losses_that_need_counts_of_draws_accept_them(name):
    problem = table.Problem()
    head = harness.built_head(problem.embeddings, problem.bias, samplers.SoftmaxSampler(5))
    loss = table.LOSSES[name].loss()
    logits = head(problem.features, training=True)
    if "draws" in loss.counts_taken:
        assert np.isfinite(loss(problem.labels, logits))
    else:
        with pytest.raises(ValueError, match="SoftmaxSampler of layer.*several times"):
            loss(problem.labels, logits)


@pytest.mark.slow  # long training
def test_a_model_of_sequences_trains():
    head = layers.LargeOutput(N, samplers.SoftmaxSampler(M, "quadratic", seed=1))
    model = keras.Sequential([keras.Input([5]), keras.layers.Embedding(N, DIM), head])
    model.compile("sgd", losses.AbsoluteSoftmaxLoss())
    words = RNG.integers(0, N, (8, 5))
    assert np.isfinite(model.fit(words, words, verbose=0).history["loss"])


def test_a_draw_without_features_raises_an_error():
    with pytest.raises(ValueError, match="by the logits of each example.*features=None"):
        sampled("softmax", features=None)


@pytest.mark.parametrize("arguments", [{"distribution": "cubic"}, {"alpha": 0}, {"alpha": "x"}])
def test_unknown_distributions_and_bad_alphas_raise_an_error(arguments):
    (name,) = arguments
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        samplers.SoftmaxSampler(3, **arguments)
