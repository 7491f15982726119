"""Properties of all samplers of hard negatives, tested with the exact search."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.harness import machine
from tests import harness
from tests.samplers.stub_layer import built_layer
from tests.slow import slow_but
from tf_largeout import layers, losses, samplers
from tf_largeout.samplers import hard_negative_sampler

N, DIM, BATCH = 50, 6, 9
RNG = np.random.default_rng(3)
EMBEDDINGS = RNG.normal(size=(N, DIM)).astype("float32")
BIAS = RNG.normal(size=N).astype("float32")
FEATURES = RNG.normal(size=(BATCH, DIM)).astype("float32")
LABELS = harness.pad([[3], [3, 5], [0], [], [7], [1], [2], [49], [8]])


def head_of(sampler):
    return harness.built_head(EMBEDDINGS, BIAS, sampler)


def sample(sampler, features=FEATURES):
    return sampler.sample(tf.constant(features), tf.constant(LABELS), head_of(sampler))


def highest(k):
    return np.argsort(-(FEATURES @ EMBEDDINGS.T + BIAS), axis=1)[:, :k]


def test_without_a_tail_the_search_gives_all_classes():
    values = sample(samplers.TopKSampler(12))
    assert isinstance(values, samplers.SampledValues)
    np.testing.assert_array_equal(values.sampled_candidates, highest(12))
    assert values.true_expected_count.shape == LABELS.shape
    for counts in values[1:]:
        np.testing.assert_array_equal(counts, 1)


def test_with_num_hard_the_tail_draws_the_others():
    values = sample(samplers.TopKSampler(12, num_hard=4))
    assert isinstance(values, samplers.HeadAndTail)
    np.testing.assert_array_equal(values.head.sampled_candidates, highest(4))
    np.testing.assert_array_equal(values.head.sampled_expected_count, 1)
    assert len(np.unique(values.tail.sampled_candidates)) == 8
    np.testing.assert_allclose(values.tail.sampled_expected_count, 8 / N)


def test_a_label_in_the_head_has_expected_count_one():
    values = sample(samplers.TopKSampler(24, num_hard=20))
    in_head = [[y in ids for y in row] for row, ids in zip(LABELS, highest(20), strict=True)]
    assert np.any(in_head)
    np.testing.assert_array_equal(values.head.true_expected_count, in_head)
    expected = np.where(in_head, 1, np.where(LABELS < 0, 1, 4 / N))
    np.testing.assert_allclose(values.true_expected_count, expected)


def test_fewer_classes_than_requested_are_padded():
    ids = sample(samplers.TopKSampler(N + 3)).sampled_candidates.numpy()
    np.testing.assert_array_equal(np.sort(ids[:, :N]), np.tile(np.arange(N), (BATCH, 1)))
    np.testing.assert_array_equal(ids[:, N:], -1)


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_low_precision_features_are_supported(dtype):
    sampler = samplers.TopKSampler(12, num_hard=4)
    head = head_of(sampler)
    values = sampler.sample(tf.cast(FEATURES, dtype), tf.constant(LABELS), head)
    assert values.head.sampled_candidates.shape == (BATCH, 4)


@pytest.mark.parametrize("tail", ["uniform", "log_uniform", samplers.UniformSampler(5)])
def test_a_tail_can_be_a_name_or_a_sampler(tail):
    sampler = samplers.TopKSampler(12, num_hard=4, tail=tail)
    assert sampler.tail.num_sampled == 8
    assert sample(sampler).tail.sampled_candidates.shape == (8,)


def test_a_sampler_given_as_tail_is_copied():
    tail = samplers.UnigramSampler(5, counts=np.arange(N))
    for num_sampled in (12, 20):
        values = sample(samplers.TopKSampler(num_sampled, num_hard=4, tail=tail))
        assert values.tail.sampled_candidates.shape == (num_sampled - 4,)
        counts = values.tail.sampled_expected_count.numpy()
        np.testing.assert_array_equal(np.argsort(counts), np.argsort(values.tail[0].numpy()))
    assert tail.num_sampled == 5
    assert len(np.unique(tail_draws(tail))) == 5


@pytest.mark.parametrize("kind", [samplers.UnigramSampler, samplers.BernoulliSampler])
def test_copies_of_one_tail_draw_from_the_classes_of_their_layer(kind):
    tail = kind(5)
    tail.adapt(np.arange(10))
    few, many = (
        built_layer(num_classes, samplers.TopKSampler(12, num_hard=4, tail=tail))
        for num_classes in (10, 1000)
    )
    for layer in (few, many):
        ids = layer.sample(features=np.ones([1, 1], "float32")).tail.sampled_candidates
        assert np.max(ids) < layer.num_classes
    tail.adapt(np.arange(30))  # No layer has built it.
    assert np.max(tail_draws(tail)) < N


def tail_draws(sampler):
    return sampler.sample(FEATURES, LABELS, head_of(sampler)).sampled_candidates


def test_the_sampler_of_a_layer_as_a_tail_raises_an_error():
    tail = samplers.UniformSampler(5)
    head_of(tail)
    with pytest.raises(ValueError, match="Give each sampler a tail of its own"):
        samplers.TopKSampler(30, num_hard=4, tail=tail)


@pytest.mark.parametrize("num_labels, num_ids", [(1, 16), (7, 30), (5, 0), (0, 5)])
def test_labels_in_the_head_are_found_per_example(num_labels, num_ids):
    labels = RNG.integers(-1, 12, [BATCH, num_labels])
    ids = RNG.integers(-1, 12, [BATCH, num_ids])
    expected = [[y >= 0 and y in row for y in ys] for ys, row in zip(labels, ids, strict=True)]
    np.testing.assert_array_equal(
        hard_negative_sampler.is_in_row(tf.constant(labels), tf.constant(ids)),
        np.reshape(expected, [BATCH, num_labels]).astype(bool),
    )


def test_memory_does_not_grow_with_labels_times_candidates():
    labels = tf.zeros([4000, 976], tf.int64)
    machine.reset_peak()
    before = machine.resident_mb()
    hard_negative_sampler.is_in_row(labels, tf.zeros([4000, 1024], tf.int64))
    assert machine.peak_mb() - before < 500  # their product: 3.7 GiB


@pytest.mark.parametrize(
    "ask",
    [
        lambda: samplers.InvertedFileSampler(12, num_hard=4).health(None),
        lambda: samplers.InvertedFileSampler(12, num_hard=4).rebuild(None),
        lambda: samplers.LSHSampler(12).health(None),
        lambda: samplers.LSHSampler(12).rebuild(None),
    ],
)
def test_health_and_rebuild_before_the_build_raise_an_error(ask):
    with pytest.raises(ValueError, match="has no state: its layer is not built yet"):
        ask()


def test_a_tail_keeps_its_state_in_the_layer():
    sampler = samplers.TopKSampler(12, num_hard=4, tail=samplers.UnigramSampler())
    sampler.tail.adapt(np.repeat(np.arange(N), 1 + np.arange(N)))
    head = head_of(sampler)
    assert {"sampler_cumulative", "sampler_index"} <= {w.name for w in head.weights}
    values = sampler.sample(FEATURES, LABELS, head)
    counts = values.tail.sampled_expected_count.numpy()
    np.testing.assert_array_equal(np.argsort(counts), np.argsort(values.tail[0].numpy()))


@pytest.mark.parametrize("bad", [0, -1, 12, 2.5, True, "all"])
def test_num_hard_must_leave_room_for_the_tail(bad):
    with pytest.raises(
        ValueError, match=r"`num_hard` must be .* below `num_sampled`.*, num_sampled=12"
    ):
        samplers.TopKSampler(12, num_hard=bad)


def test_the_error_of_a_tail_with_too_many_classes_has_a_remedy():
    layer = layers.LargeOutput(1000, sampler=samplers.InvertedFileSampler(1024))
    message = r"InvertedFileSampler\(num_sampled=1024, num_hard=16\) leaves 1008 .*Lower"
    with pytest.raises(ValueError, match=message):
        layer.build([None, 4])


def test_a_sampler_without_upkeep_can_be_converted_to_a_graph():
    converted = tf.autograph.to_graph(samplers.TopKSampler.keep_up)
    assert converted(samplers.TopKSampler(3), layer=None) is None


class NotedSearch(samplers.HardNegativeSampler):
    """Counts its upkeep, and finds the class with that number."""

    def build(self, layer):
        super().build(layer)
        self.upkeep = self.add_weight(layer, "upkeep", (), "int64", "zeros")

    def keep_up(self, layer):
        self.upkeep.value.assign_add(1)

    def search(self, features, labels, layer):
        shape = [tf.shape(features)[0], self.num_searched]
        return tf.fill(shape, tf.identity(self.upkeep.value))


@pytest.mark.parametrize(
    "start_step, in_graph",
    slow_but([(0, False), (3, True)], itertools.product([0, 3], [False, True])),
)
def test_upkeep_runs_once_before_the_search_of_each_step(start_step, in_graph):
    sampler = NotedSearch(12, num_hard=1, start_step=start_step)
    head = head_of(sampler)

    def step():
        return sampler.sample(tf.constant(FEATURES), tf.constant(LABELS), head)

    step = tf.function(step) if in_graph else step
    found = [int(step().head.sampled_candidates[0, 0]) for _ in range(5)]
    assert found == [-1] * start_step + list(range(1, 6 - start_step))


def test_configs_contain_the_tail_with_its_arguments():
    sampler = samplers.TopKSampler(12, 4, samplers.UniformSampler(5, unique=False))
    again = samplers.get(keras.saving.serialize_keras_object(sampler))
    assert not again.tail.unique and again.tail.num_sampled == 8


def test_the_name_unigram_as_a_tail_raises_an_error():
    with pytest.raises(ValueError, match='"unigram" has no class counts.*counts=.*`adapt'):
        samplers.TopKSampler(12, num_hard=4, tail="unigram")


@pytest.mark.parametrize("bad", ["top_k", None, 3])
def test_the_error_of_an_unknown_tail_lists_the_known_ones(bad):
    message = "log_uniform.*uniform.*StaticSampler.*Received: tail="
    with pytest.raises(ValueError, match=message):
        samplers.TopKSampler(12, num_hard=4, tail=bad)


@pytest.mark.parametrize("bad", [samplers.TopKSampler(8), samplers.LSHSampler(8, form="pool")])
@pytest.mark.parametrize("serialized", [False, True])
def test_a_tail_that_is_not_static_raises_an_error_at_once(bad, serialized):
    tail = keras.saving.serialize_keras_object(bad) if serialized else bad
    name = type(bad).__name__
    with pytest.raises(
        ValueError, match=f"a `StaticSampler`.*Received: tail=.*{name}.*Make a {name} the"
    ):
        samplers.TopKSampler(12, num_hard=4, tail=tail)


@pytest.mark.slow
def test_a_subclass_defines_only_the_search():
    with pytest.raises(NotImplementedError, match="must implement `search`"):
        sample(samplers.HardNegativeSampler(12))


@pytest.mark.slow  # long training
def test_top_k_softmax_learns():
    model = keras.Sequential([keras.Input([DIM]), layers.LargeOutput(N, "top_k")])
    model.compile(keras.optimizers.SGD(1.0), losses.SampledSoftmaxLoss())
    model.optimizer.build(model.trainable_variables)  # Otherwise each step is traced twice.
    data = dict(x=np.tile(FEATURES, (8, 1)), y=np.tile(LABELS, (8, 1)), verbose=0)
    history = model.fit(**data, epochs=5).history["loss"]
    assert history[-1] < history[0] - 0.5
