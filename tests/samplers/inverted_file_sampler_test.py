import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import harness, replicas
from tf_largeout import samplers

NUM_CLASSES, DIM, BATCH = 400, 8, 16


def make_sampler(**kwargs):
    return samplers.InvertedFileSampler(
        **{"num_sampled": 40, "num_hard": 8, "start_step": 3, "seed": 1, **kwargs}
    )


def make_model(**kwargs):
    keras.utils.set_random_seed(3)
    head = tflo.layers.LargeOutput(NUM_CLASSES, sampler=make_sampler(**kwargs), name="head")
    model = keras.Sequential([keras.Input([DIM]), keras.layers.Dense(DIM), head])
    model.compile(
        optimizer=tflo.optimizers.LazyAdam(0.01), loss=tflo.losses.SampledSoftmaxLoss()
    )
    model.optimizer.build(model.trainable_variables)  # Otherwise each step is traced twice.
    return model


def examples(steps, seed=0):
    random = np.random.default_rng(seed)
    labels = random.integers(NUM_CLASSES, size=steps * BATCH)
    features = np.random.default_rng(9).normal(size=[NUM_CLASSES, DIM])[labels]
    return features.astype("f4"), labels


def fit(model, steps, seed=0):
    x, y = examples(steps, seed)
    return model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0).history["loss"][0]


def head_of(sampler, layer, features):
    labels = tf.zeros([len(features), 1], tf.int64)
    return sampler.sample(tf.constant(features), labels, layer).head.sampled_candidates.numpy()


def built(sampler, embeddings, bias=None):
    layer = tflo.layers.LargeOutput(len(embeddings), sampler=sampler)
    layer.build((None, embeddings.shape[1]))
    layer.embeddings.assign(embeddings)
    return layer


def test_the_head_has_the_hardest_classes_from_its_start_step_on():
    random = np.random.default_rng(0)
    rows = random.normal(size=[NUM_CLASSES, DIM]).astype("f4")
    features = random.normal(size=[BATCH, DIM]).astype("f4")
    sampler = make_sampler(num_probes=1000)
    layer = built(sampler, rows)
    for _ in range(3):
        assert np.all(head_of(sampler, layer, features) == -1)
    ids = head_of(sampler, layer, features)
    exact = layer.top_k(features, 8)[1].numpy()
    hits = [len(set(a) & set(b)) / 8 for a, b in zip(ids, exact, strict=True)]
    assert np.mean(hits) > 0.95
    assert sampler.health(layer)["started_at"] == 3


@pytest.mark.slow  # In the short suite the heads of inverted_file_draws_test.py learn.
def test_training_with_the_head_learns():
    model = make_model(start_step=10)
    first = fit(model, 10)
    for _ in range(8):
        last = fit(model, 40)
    assert last < 0.7 * first
    assert model.layers[-1].sampler.health(model.layers[-1])["started_at"] == 10


# Before the search starts, and after the lists are fitted and reassigned.
@pytest.mark.parametrize("before", [2, 5, 40])
@pytest.mark.slow  # tests/integration/resume_test.py has it among others
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, before):
    harness.assert_resumed_equals_uninterrupted(
        make_model,
        lambda model: fit(model, before, seed=1),
        lambda model: fit(model, 50, seed=2),  # Past the reassignment 48 steps after the fit.
        tmp_path,
    )


def test_checkpoints_and_set_weights_restore_the_lists(tmp_path):
    model = make_model()
    fit(model, 6)
    features = examples(1)[0]
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    found = head_of(model.layers[-1].sampler, model.layers[-1], features)
    assert np.all(found[:, 0] >= 0)
    restored, copied = make_model(), make_model()
    tf.train.Checkpoint(model=restored).restore(path).expect_partial()
    copied.set_weights(restored.get_weights())
    for other in (restored, copied):
        again = head_of(other.layers[-1].sampler, other.layers[-1], features)
        np.testing.assert_array_equal(again, found)


def test_rebuild_fits_to_assigned_weights():
    random = np.random.default_rng(0)
    rows = random.normal(size=[NUM_CLASSES, DIM]).astype("f4")
    sampler = make_sampler(start_step=1000, num_probes=1000)
    layer = built(sampler, rows)
    sampler.rebuild(layer)
    assert np.all(head_of(sampler, layer, rows[:5])[:, 0] >= 0)
    layer.embeddings.assign(-rows)
    sampler.rebuild(layer)
    ids, exact = head_of(sampler, layer, rows[:5]), layer.top_k(rows[:5], 8)[1].numpy()
    assert np.mean([len(set(a) & set(b)) / 8 for a, b in zip(ids, exact, strict=True)]) > 0.95


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros([NUM_CLASSES, DIM]),
        np.ones([NUM_CLASSES, DIM]),
        np.where(np.arange(NUM_CLASSES)[:, None] % 3, np.ones(DIM), np.nan),
    ],
    ids=["zero", "equal", "nan"],
)
def test_rows_that_are_not_finite_give_distinct_classes_and_finite_counts(rows):
    sampler = make_sampler(start_step=0)
    ids = head_of(sampler, built(sampler, rows.astype("f4")), np.ones([3, DIM], "f4"))
    for row in ids:
        found = row[row >= 0]
        assert len(set(found)) == len(found) > 0
        assert np.all(np.isfinite(rows[found]))


@pytest.mark.parametrize("num_classes", [1, 2, 30])
def test_fewer_classes_than_the_head_or_the_lists_are_supported(num_classes):
    sizes = {"num_sampled": 41, "num_hard": 40, "num_lists": 64, "num_probes": 64}
    sampler = make_sampler(start_step=0, **sizes)
    rows = np.random.default_rng(0).normal(size=[num_classes, DIM]).astype("f4")
    ids = head_of(sampler, built(sampler, rows), rows[:1])
    assert set(ids[0]) == {-1, *range(num_classes)}


def test_without_a_tail_all_classes_are_found_by_search():
    sampler = make_sampler(num_hard=None, start_step=0)
    rows = np.random.default_rng(0).normal(size=[NUM_CLASSES, DIM]).astype("f4")
    values = sampler.sample(
        tf.constant(rows[:4]), tf.zeros([4, 1], tf.int64), built(sampler, rows)
    )
    assert values.sampled_candidates.shape == (4, 40)
    np.testing.assert_array_equal(values.sampled_expected_count, 1)


@pytest.mark.slow
def test_mixed_precision_and_models_without_bias_train():
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        model = make_model(start_step=0)
        model.run_eagerly = True
        assert np.isfinite(fit(model, 4))
    finally:
        keras.mixed_precision.set_global_policy("float32")


@pytest.mark.parametrize(
    "wrong", [{"num_lists": 0}, {"num_probes": 2.5}, {"start_step": -1}, {"num_hard": 40}]
)
def test_wrong_arguments_raise_an_error(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        make_sampler(**wrong)


@pytest.mark.slow
def test_replicas_have_equal_lists():
    strategy, sampler = replicas.two_replicas(), make_sampler(num_lists=5)
    rows = np.random.default_rng(0).normal(size=[54, NUM_CLASSES, DIM]).astype("f4")
    with strategy.scope():
        layer = built(sampler, rows[0])  # k-means uses only some of the rows.

    @tf.function
    def step(rows):
        layer.embeddings.assign(rows)
        labels = tf.zeros([BATCH, 1], tf.int64)
        strategy.run(lambda: sampler.sample(layer.embeddings[:BATCH], labels, layer))

    for of_step in rows:  # Past a reassignment.
        step(of_step)
    health = layer.sampler.health(layer)
    assert health["started_at"] == 3 and health["fitted_at"] == 0
    state = [weight for weight in layer.weights if weight.name.startswith("sampler_")]
    means = next(weight for weight in state if weight.name == "sampler_means")
    trained = means.numpy().copy()
    for weight in state:
        np.testing.assert_array_equal(*weight.value.values)
    layer.embeddings.assign(-layer.embeddings)
    layer.sampler.rebuild(layer)
    assert not np.array_equal(trained, means)
    for weight in state:
        np.testing.assert_array_equal(*weight.value.values)
