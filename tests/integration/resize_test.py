"""Adding and removing classes with each sampler."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import replicas
from tests.integration.samplers import NUM_CLASSES, SAMPLERS
from tests.papers.lsh.lsh_forms import lsh_sampler
from tests.reference import samplers as reference
from tests.resize_problem import state
from tests.samplers.stub_layer import built_layer
from tests.slow import slow_but
from tf_largeout import samplers
from tf_largeout.classes.class_changes import ClassChange

KEPT = np.random.default_rng(3).permutation(NUM_CLASSES)[:250]
COUNTS = np.array([5.0, 0, 3, 1, 0, 40, 2, 2])


def _data(num_classes=NUM_CLASSES, seed=9):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 40, (32, 5))
    y = rng.integers(-1, num_classes, (32, 3))
    y[:, 0] = x[:, 0] * 6
    return x, y


def _model(sampler, num_shards=1, eagerly=False):
    model = keras.Sequential(
        [
            keras.Input([5], dtype="int32"),
            keras.layers.Embedding(40, 6),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dropout(0.1, seed=5),
            tflo.layers.LargeOutput(NUM_CLASSES, sampler, num_shards=num_shards),
        ]
    )
    model.compile(
        tflo.optimizers.LazyAdam(0.01), tflo.losses.SampledSoftmaxLoss(), run_eagerly=eagerly
    )
    model.optimizer.build(model.trainable_variables)  # avoids a second trace
    return model


def _fit(model, *data):
    return model.fit(*data, batch_size=8, shuffle=False, verbose=0).history["loss"]


@pytest.mark.slow
@pytest.mark.parametrize("num_shards", [1, 3])
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_resized_model_continues_training(name, num_shards):
    model = _model(SAMPLERS[name](), num_shards)
    _fit(model, *_data())
    same = tflo.resize_classes(model, NUM_CLASSES)
    grown = tflo.resize_classes(model, 400, KEPT)
    assert np.isfinite(_fit(grown, *_data(400, seed=2))).all()
    assert _fit(same, *_data(seed=2)) == _fit(model, *_data(seed=2))
    for (path, values), (_, found) in zip(state(model), state(same), strict=True):
        np.testing.assert_array_equal(found, values, err_msg=path)


def test_a_started_search_includes_the_new_classes(capfd):
    model = _model(samplers.InvertedFileSampler(20, num_hard=6, start_step=2, seed=3))
    _fit(model, *_data())
    assert "begins in training step 2" in capfd.readouterr().err
    grown = tflo.resize_classes(model, 400, KEPT, keras.initializers.RandomNormal(seed=1))
    _fit(grown, *_data(400))
    assert "begins" not in capfd.readouterr().err
    head = grown.layers[-1]
    assert head.sampler.health(head)["started_at"] == 2
    queries = 3 * tf.linalg.normalize(head.embeddings.value, axis=1)[0]
    found = head.sampler.search(queries, tf.zeros([400, 0], tf.int64), head)
    _, best = head.top_k(queries, 1)
    assert tf.reduce_mean(tf.cast(tf.reduce_any(found == best, axis=1), tf.float32)) > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("num_shards", slow_but([3], [1, 3]))
def test_lsh_tables_keep_their_rebuild_schedule(num_shards):
    model = _model(lsh_sampler(20, rebuild_every=2, seed=3), num_shards, eagerly=True)
    _fit(model, *_data())
    grown = tflo.resize_classes(model, 400, KEPT)
    _fit(grown, *_data(400))
    # The tables are built in step 4, the first of four. The next interval is that of step 4.
    states = [one for one in grown.layers[-1].weights if "rebuild_state" in one.name]
    assert [one.numpy().tolist() for one in states] == num_shards * [[8, 4 + 2 + 2]]
    assert grown.layers[-1].sampler.health(grown.layers[-1])["fresh_share"] > 0.5


def _resized(sampler, num_classes, kept):
    """A layer with a class per count, and one whose sampler took over its kept classes."""
    layer = built_layer(len(COUNTS), sampler)
    copy = built_layer(num_classes, type(sampler).from_config(sampler.get_config()))
    copy.sampler.take_classes(sampler, ClassChange(len(COUNTS), num_classes, kept))
    return layer, copy


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("num_classes, kept", [(8, [7, 6, 5, 4, 3, 2, 1, 0]), (10, [5, 0, 1])])
def test_label_counts_of_kept_classes_stay(num_classes, kept, unique, adapted):
    sampler = samplers.UnigramSampler(3, None if adapted else COUNTS, 0.75, unique=unique)
    if adapted:
        sampler.adapt(np.repeat(np.arange(8), COUNTS.astype(int)))
    _, copy = _resized(sampler, num_classes, kept)
    counts = np.pad(COUNTS[kept], (0, num_classes - len(kept)))
    expected = reference.expected_counts(reference.unigram(counts, 0.75), 3, unique)
    np.testing.assert_allclose(copy.expected_counts(), expected, rtol=1e-6)


def test_counts_of_a_bernoulli_sampler_and_of_a_tail_stay():
    _, copy = _resized(samplers.BernoulliSampler(3, COUNTS), 10, [5, 0, 1])
    counts = np.pad(COUNTS[[5, 0, 1]], (0, 7))
    np.testing.assert_allclose(
        copy.expected_counts(), reference.bernoulli(counts, 3), rtol=1e-5
    )
    tail = samplers.UnigramSampler(counts=COUNTS)
    sampler = samplers.TopKSampler(4, num_hard=1, tail=tail, start_step=5)
    layer, copy = _resized(sampler, 10, [5, 0, 1])
    np.testing.assert_array_equal(layer.sampler.tail._count_weight, COUNTS)
    np.testing.assert_array_equal(copy.sampler.tail._count_weight, counts)


def test_zero_counts_give_uniform_draws_and_missing_counts_stay_missing():
    _, copy = _resized(samplers.UnigramSampler(3, COUNTS), 4, [1, 4])
    np.testing.assert_allclose(copy.expected_counts(), 3 / 4, rtol=1e-6)
    _, copy = _resized(samplers.UnigramSampler(3), 4, [1, 4])
    with pytest.raises(ValueError, match="no class counts"):
        copy.expected_counts()


@pytest.mark.parametrize("num_pairs", [None, 30])
def test_pair_counts_of_kept_classes_stay(num_pairs):
    labels = np.arange(60).reshape(6, 10) ** 2 % 8
    kept, num_classes = [5, 0, 4, 1], 10
    sampler = samplers.BigramSampler(6, num_pairs)
    sampler.adapt(labels)
    _, copy = _resized(sampler, num_classes, kept)
    # The same labels under their new ids. Removed labels form no pairs.
    new_ids = ClassChange(8, num_classes, kept).new_ids()
    expected = samplers.BigramSampler(6, num_pairs=copy.sampler.num_pairs)
    expected.adapt(new_ids[labels])
    built_layer(num_classes, expected)
    for found, table in zip(
        copy.sampler._tables.values(), expected._tables.values(), strict=True
    ):
        np.testing.assert_array_equal(found, table)


def test_missing_pair_counts_stay_missing():
    _, copy = _resized(samplers.BigramSampler(6, 30), 10, [5, 0, 4])
    assert not any(table.any() for table in copy.sampler._tables.values())


@pytest.mark.slow
def test_a_resized_model_stays_on_two_replicas():
    with replicas.two_replicas().scope():
        model = _model(samplers.UniformSampler(20, seed=3))
    _fit(model, *_data())
    grown = tflo.resize_classes(model, 400, KEPT)
    assert grown.layers[-1].embeddings.value.distribute_strategy.num_replicas_in_sync == 2
    rows = [one.layers[-1].class_embeddings().numpy() for one in (model, grown)]
    np.testing.assert_array_equal(rows[1][:250], rows[0][KEPT])
    assert np.isfinite(_fit(grown, *_data(400))).all()
