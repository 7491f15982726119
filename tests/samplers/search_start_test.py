import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tf_largeout import samplers
from tf_largeout.samplers.search_start import effective_sample_size

N, DIM, BATCH = 60, 5, 8
RNG = np.random.default_rng(4)
EMBEDDINGS = RNG.normal(size=(N, DIM)).astype("float32")
BIAS = RNG.normal(size=N).astype("float32")
FEATURES = RNG.normal(size=(BATCH, DIM)).astype("float32")
LABELS = harness.pad([[3], [3, 5], [0], [], [7], [1], [2], [49]])


def slow_sizes(sample):
    ids = sample.sampled_candidates.numpy()
    weights = np.exp(FEATURES.astype("f8") @ EMBEDDINGS[ids].T + BIAS[ids])
    weights /= sample.sampled_expected_count.numpy()
    weights[[[i in row for i in ids] for row in LABELS]] = 0.0
    return weights.sum(1) ** 2 / (weights**2).sum(1)


@pytest.mark.parametrize("name", ["uniform", "log_uniform"])
def test_it_is_that_of_the_importance_weights(name):
    layer = harness.built_head(EMBEDDINGS, BIAS, samplers.get(name).__class__(20, seed=2))
    sample = layer.sampler.sample(FEATURES, tf.constant(LABELS), layer)
    sizes = effective_sample_size(tf.constant(FEATURES), tf.constant(LABELS), sample, layer)
    np.testing.assert_allclose(sizes, slow_sizes(sample), rtol=1e-4)


def test_equal_logits_count_all_and_one_high_logit_counts_one():
    layer = harness.built_head(
        np.zeros_like(EMBEDDINGS), np.zeros(N), samplers.UniformSampler(N)
    )
    no_labels = tf.fill([BATCH, 1], tf.constant(-1, tf.int64))
    sample = layer.sampler.sample(FEATURES, no_labels, layer)

    def sizes(labels=no_labels):
        return effective_sample_size(tf.constant(FEATURES), labels, sample, layer).numpy()

    np.testing.assert_allclose(sizes(), N, rtol=1e-5)
    layer.bias.assign(np.where(np.arange(N) == 7, 50.0, 0.0))
    np.testing.assert_allclose(sizes(), 1, rtol=1e-5)
    np.testing.assert_allclose(sizes(no_labels + 8), N - 1, rtol=1e-5)  # 7 is the label


SEARCHES = {
    "top k": samplers.TopKSampler,
    "lsh": samplers.LSHSampler,
    "inverted file": samplers.InvertedFileSampler,
}


def found(layer):
    """Whether a step of training finds classes of the rows' own."""
    labels = tf.constant(LABELS)
    ids = layer.sampler.sample(tf.constant(FEATURES), labels, layer).head.sampled_candidates
    assert np.all(ids.numpy() == -1) or np.all(ids.numpy()[:, 0] >= 0)
    return bool(np.any(ids.numpy() >= 0))


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_wait_for_their_step(name):
    sampler = SEARCHES[name](20, num_hard=4, start_step=3)
    layer = harness.built_head(EMBEDDINGS, BIAS, sampler)
    assert [found(layer) for _ in range(5)] == [False, False, False, True, True]
    assert sampler.start.started_at(layer) == 3


@pytest.mark.parametrize("name", ["lsh", "inverted file"])
def test_a_rebuild_by_hand_starts_the_search(name):
    sampler = SEARCHES[name](20, num_hard=4, start_step=1000)
    layer = harness.built_head(EMBEDDINGS, BIAS, sampler)
    assert not found(layer)
    sampler.rebuild(layer)
    assert found(layer)
    assert sampler.start.started_at(layer) == 1


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_without_a_tail_start_at_once(name):
    sampler = SEARCHES[name](20, num_hard=None)
    assert sampler.start.started_at(harness.built_head(EMBEDDINGS, BIAS, sampler)) == 0
    with pytest.raises(ValueError, match="start_step=3, num_hard=None"):
        SEARCHES[name](20, num_hard=None, start_step=3)
