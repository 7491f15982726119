"""`InvertedFileSampler(select="draw")` in the training steps of a model."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import harness, replicas
from tests.slow import slow_but
from tf_largeout import samplers

NUM_CLASSES, DIM, BATCH, M = 300, 8, 16, 40
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(BATCH, DIM)).astype("float32")


def make_model(num_hard=None, loss=None, **kwargs):
    keras.utils.set_random_seed(3)
    sampler = samplers.InvertedFileSampler(
        M, num_hard=num_hard, select="draw", seed=1, **kwargs
    )
    head = tflo.layers.LargeOutput(NUM_CLASSES, sampler=sampler)
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(
        optimizer=tflo.optimizers.LazyAdam(0.02), loss=loss or tflo.losses.SampledSoftmaxLoss()
    )
    model.optimizer.build(model.trainable_variables)  # Otherwise each step is traced twice.
    return model


def fit(model, steps, seed=0):
    random = np.random.default_rng(seed)
    labels = random.integers(NUM_CLASSES, size=steps * BATCH)
    features = np.random.default_rng(9).normal(size=[NUM_CLASSES, DIM])[labels]
    history = model.fit(features, labels, batch_size=BATCH, shuffle=False, verbose=0)
    return history.history["loss"][0]


def samples(model, labels, steps=1, features=FEATURES):
    """Returns the samples of `steps` steps."""
    head = model.layers[-1]

    @tf.function(autograph=False)
    def step():
        return head.sampler.sample(tf.constant(features), tf.constant(labels, tf.int64), head)

    return [tf.nest.map_structure(lambda tensor: tensor.numpy(), step()) for _ in range(steps)]


@pytest.fixture(scope="module")
def trained():
    """Returns a trained model, of which tests change only the seed state."""
    model = make_model()
    fit(model, 60)
    return model


@pytest.mark.slow
def test_counts_of_labels_and_draws_match_the_draws(trained):
    labels = np.tile(np.arange(-1, NUM_CLASSES), (BATCH, 1))
    drawn, expected = np.zeros([2, BATCH, NUM_CLASSES])
    for ids, true_counts, counts in samples(trained, labels, 200):
        np.testing.assert_array_equal(true_counts[:, 0], 1)
        of_classes = true_counts[:, 1:]
        np.testing.assert_array_equal(counts, np.take_along_axis(of_classes, ids, axis=1))
        np.testing.assert_allclose(of_classes.sum(axis=1), M, rtol=1e-5)
        np.add.at(drawn, (np.arange(BATCH)[:, None], ids), 1)
        expected += of_classes
    assert np.all(np.abs(drawn - expected) < 5 * np.sqrt(expected) + 3)
    chi_square, freedom = np.sum((drawn - expected) ** 2 / expected), drawn.size - BATCH
    assert chi_square < freedom + 5 * np.sqrt(np.sum(2 + 1 / expected))


@pytest.mark.slow  # It follows from the test above.
def test_the_estimate_of_the_partition_function_is_unbiased(trained):
    head = trained.layers[-1]
    logits = head(FEATURES, training=False).numpy()
    partition = np.exp(logits).sum(axis=1)
    estimates = []
    for ids, _, counts in samples(trained, [[0]] * BATCH, 300):
        terms = np.exp(np.take_along_axis(logits, ids, axis=1)) / counts
        estimates.append(terms.sum(axis=1))
    error = np.std(estimates, axis=0) / np.sqrt(300)
    assert np.all(np.abs(np.mean(estimates, axis=0) - partition) < 5 * error)


@pytest.mark.slow
@pytest.mark.parametrize("num_hard", [None, 8])
def test_training_learns(num_hard):
    model = make_model(num_hard, start_step=10 if num_hard else None)
    first = fit(model, 10)
    for _ in range(4):
        last = fit(model, 60)
    assert last < 0.7 * first


@pytest.mark.parametrize("name", slow_but([], ["NCELoss", "NegativeSamplingLoss"]))
def test_other_losses_stay_finite(name):
    assert np.isfinite(fit(make_model(loss=getattr(tflo.losses, name)()), 60))


def test_heads_are_distinct_draws_from_the_start_step_on():
    model = make_model(num_hard=8, start_step=2)
    labels = np.arange(BATCH)[:, np.newaxis]
    heads = [values.head for values in samples(model, labels, 4, 3 * FEATURES)]
    for head in heads[:2]:
        np.testing.assert_array_equal(head.sampled_candidates, -1)
    for head in heads[2:]:
        ids = head.sampled_candidates
        found = [row[row >= 0] for row in ids]
        assert all(len(set(row)) == len(row) > 1 for row in found)
        assert sum(map(len, found)) < ids.size  # Some were drawn twice.
        np.testing.assert_array_equal(head.sampled_expected_count, 1)
        in_head = [[label in row] for label, row in enumerate(ids)]
        np.testing.assert_array_equal(head.true_expected_count, in_head)
    assert not np.array_equal(heads[2].sampled_candidates, heads[3].sampled_candidates)


def test_only_the_corrected_form_stores_the_list_of_each_class():
    names = [
        {weight.name for weight in make_model(num_hard).layers[-1].weights}
        for num_hard in (None, 8)
    ]
    assert names[0] - names[1] >= {"sampler_list_of_row"}
    assert not any("list_of_row" in name for name in names[1])


@pytest.mark.slow
@pytest.mark.parametrize("before", [2, 40])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, before):
    harness.assert_resumed_equals_uninterrupted(
        make_model,
        lambda model: fit(model, before, seed=1),
        lambda model: fit(model, 50, seed=2),  # Past the reassignment 48 steps after the fit.
        tmp_path,
    )


def test_labels_too_improbable_for_float32_have_a_positive_count(trained):
    labels = np.tile(np.arange(NUM_CLASSES), (BATCH, 1))
    counts = samples(trained, labels, features=1e5 * FEATURES)[0].true_expected_count
    assert 0 < counts.min() < 1e-37 and np.all(np.isfinite(np.log(counts)))


@pytest.mark.slow
def test_replicas_draw_different_classes_from_equal_lists():
    with replicas.two_replicas().scope():
        model = make_model()
    assert np.isfinite(fit(model, 54))  # Past a reassignment.
    for weight in model.layers[-1].weights:
        if weight.name.startswith("sampler_"):
            np.testing.assert_array_equal(*weight.value.values)


def test_an_unknown_selection_raises_an_error():
    with pytest.raises(ValueError, match="`select` must be one of .*draw.*'best'"):
        samplers.InvertedFileSampler(select="best")
