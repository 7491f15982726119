"""Samplers that search, with the classes in shards: the same counts, recall and learning."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import harness
from tests.integration.sharded_models import (
    BATCH,
    CLASSES,
    DIM,
    EACH_COUNT,
    FEATURES,
    M,
    N,
    fit,
)

FORMS = {
    "head": {"num_hard": 8, "start_step": 3},
    "few lists": {"num_hard": 8, "start_step": 3, "num_lists": 30, "num_probes": 4},
    "alone": {"num_hard": None},
    "draws": {"num_hard": None, "select": "draw"},
    "drawn head": {"num_hard": 8, "start_step": 3, "select": "draw"},
}


def new_model(num_shards, form="head", rate=0.02, **kwargs):
    keras.utils.set_random_seed(3)
    sampler = tflo.samplers.InvertedFileSampler(M, seed=1, **{**FORMS[form], **kwargs})
    head = tflo.layers.LargeOutput(N, sampler, num_shards=num_shards, name="head")
    model = keras.Sequential([keras.Input([DIM]), keras.layers.Dense(DIM), head])
    model.compile(
        tflo.optimizers.LazyAdam(rate),
        tflo.losses.SampledSoftmaxLoss(),
        metrics=[tflo.metrics.PrecisionAtK(1)],
    )
    return model


def recall(model):
    """Of the 8 best classes, how many the search finds, by exact logits of now."""
    dense, head = model.layers
    features = dense(CLASSES)
    no_labels = tf.zeros([N, 0], tf.int64)
    found = head.sampler.search(features, no_labels, head).numpy()[:, :8]
    best = head.top_k(features, 8)[1].numpy()
    return np.mean([len(set(a) & set(b)) / 8 for a, b in zip(found, best, strict=True)])


@EACH_COUNT
def test_a_search_of_all_lists_finds_the_best_in_their_order(num_shards):
    """Scores are of rows at 8 bits a number, so neighbours may change places."""
    model = new_model(num_shards, "alone", num_probes=1000)
    head = model.layers[-1]
    head.sampler.rebuild(head)
    found = head.sampler.search(FEATURES, tf.zeros([BATCH, 0], tf.int64), head).numpy()
    scores = model.layers[-1].class_matrix.dots(FEATURES, found).numpy()
    best, _ = head.top_k(FEATURES, M)
    np.testing.assert_allclose(scores, best, atol=0.03)
    assert all(len(set(row)) == M for row in found)


@pytest.mark.parametrize(
    "form, num_shards", [("head", 3), pytest.param("few lists", 7, marks=pytest.mark.slow)]
)
def test_recall_and_precision_are_those_of_one_shard(form, num_shards):
    found = []
    for count in (1, num_shards):
        model = new_model(count, form, rate=0.05)
        for epoch in range(3):
            fit(model, 150, seed=epoch)
        labels = np.arange(N)
        precision = model.evaluate(CLASSES, labels, verbose=0, return_dict=True)
        found.append((recall(model), precision["precision_at_1"]))
    (one_recall, one_precision), (other_recall, other_precision) = found
    assert other_recall > one_recall - 0.05 and one_recall > 0.5
    assert abs(other_precision - one_precision) < 0.05 and one_precision > 0.5


def samples(model, labels, steps):
    """What the sampler gives in so many steps."""
    head = model.layers[-1]

    @tf.function
    def step():
        return head.sampler.sample(tf.constant(FEATURES), tf.constant(labels, tf.int64), head)

    return [tf.nest.map_structure(lambda tensor: tensor.numpy(), step()) for _ in range(steps)]


@pytest.mark.parametrize("num_shards, is_fitted", [(2, True), (3, True), (3, False)])
def test_reported_counts_are_those_of_the_draws(num_shards, is_fitted):
    model = new_model(num_shards, "draws")
    if is_fitted:
        fit(model, 60)
    else:
        model.layers[-1].sampler.prepare = lambda layer: None  # no lists: all alike
    labels = np.tile(np.arange(-1, N), (BATCH, 1))
    drawn, expected = np.zeros([2, BATCH, N])
    for ids, true_counts, counts in samples(model, labels, 150):
        of_classes = true_counts[:, 1:]
        of_drawn = np.take_along_axis(of_classes, ids, axis=1)
        np.testing.assert_allclose(counts, of_drawn, rtol=1e-6)
        np.testing.assert_allclose(of_classes.sum(axis=1), M, rtol=1e-5)
        np.add.at(drawn, (np.arange(BATCH)[:, None], ids), 1)
        expected += of_classes
    assert np.all(np.abs(drawn - expected) < 5.5 * np.sqrt(expected) + 3)
    chi_square, freedom = np.sum((drawn - expected) ** 2 / expected), drawn.size - BATCH
    assert chi_square < freedom + 5 * np.sqrt(np.sum(2 + 1 / expected))
    if not is_fitted:
        np.testing.assert_allclose(expected, 150 * M / N, rtol=1e-5)


@pytest.mark.parametrize("form", ["head", "drawn head", "draws"])
def test_the_estimate_of_the_partition_function_is_unbiased(form):
    """Heads count once, and tails and draws by one over their counts."""
    model = new_model(3, form)
    fit(model, 30)
    dense, head = model.layers
    logits = head(FEATURES, training=False).numpy()
    partition, estimates = np.exp(logits).sum(axis=1), []
    for values in samples(model, np.full([BATCH, 1], -1), 300):
        parts = values if form != "draws" else [values]
        in_head = np.zeros([BATCH, N], bool)
        total = np.zeros(BATCH)
        for ids, _, counts in parts:
            ids, counts = (np.broadcast_to(x, [BATCH, x.shape[-1]]) for x in (ids, counts))
            taken = ids >= 0
            if ids is not parts[0][0] and form != "draws":
                taken &= ~np.take_along_axis(in_head, np.maximum(ids, 0), axis=1)
            terms = np.exp(np.take_along_axis(logits, np.maximum(ids, 0), axis=1)) / counts
            total += np.where(taken, terms, 0).sum(axis=1)
            rows, places = np.nonzero(taken)
            in_head[rows, ids[rows, places]] = True
        estimates.append(total)
    error = np.std(estimates, axis=0) / np.sqrt(300)
    assert np.all(np.abs(np.mean(estimates, axis=0) - partition) < 5 * error)


@pytest.mark.parametrize("form", ["draws", "drawn head"])
def test_training_learns_with_other_forms(form):
    model = new_model(3, form, rate=0.05)
    fit(model, 200)
    loss, precision = model.evaluate(CLASSES, np.arange(N), verbose=0)
    assert loss < 0.7 * np.log(N) and precision > 0.15


def test_rows_that_are_no_numbers_are_never_found():
    model = new_model(3, "alone", num_probes=1000)
    head = model.layers[-1]
    for number in range(3):
        rows = getattr(head, f"embeddings_{number}")
        values = rows.numpy()
        values[::3] = np.nan
        rows.assign(values)
    head.sampler.rebuild(head)
    found = head.sampler.search(FEATURES, tf.zeros([BATCH, 0], tf.int64), head).numpy()
    assert np.all(np.isfinite(head.class_embeddings().numpy()[found]))


def test_more_are_sought_than_a_shard_has():
    sampler = tflo.samplers.InvertedFileSampler(20, num_hard=12, start_step=0, seed=1)
    head = tflo.layers.LargeOutput(30, sampler, num_shards=7)
    head.build((None, DIM))
    sampler.rebuild(head)
    found = sampler.search(FEATURES, tf.zeros([BATCH, 0], tf.int64), head).numpy()
    assert all(len(set(row)) == 12 and row.min() >= 0 for row in found)


# Before the search starts; and after the lists were fitted.
@pytest.mark.parametrize("before", [pytest.param(2, marks=pytest.mark.slow), 40])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, before):
    harness.assert_resumed_equals_uninterrupted(
        lambda: new_model(3),
        lambda model: fit(model, before, seed=1),
        lambda model: fit(model, 50, seed=2),  # over a reassignment
        tmp_path,
    )


@pytest.mark.parametrize("before, after", [(1, 3), (3, 2), (3, 1)])
def test_another_number_of_shards_goes_on_with_new_lists(tmp_path, before, after, caplog):
    model, other = new_model(before), new_model(after)
    fit(model, 10)
    model.save_weights(tmp_path / "a.weights.h5")
    other.optimizer.build(other.trainable_variables)
    other.load_weights(tmp_path / "a.weights.h5")
    assert "another number of shards" in caplog.text
    head = other.layers[-1]
    np.testing.assert_array_equal(head.class_embeddings(), model.layers[-1].class_embeddings())
    health = head.sampler.list_health(head)
    assert health["started_at"] == 3 and health["fitted_at"] == -1
    fit(other, 1)  # the next step, which searches
    assert head.sampler.list_health(head)["fitted_at"] == 0 and recall(other) > 0.5


@pytest.mark.parametrize("before, after", [(3, 3), (3, 2)])
def test_a_checkpoint_has_the_lists_of_as_many_shards(tmp_path, before, after):
    model, other = new_model(before), new_model(after)
    fit(model, 10)
    other.optimizer.build(other.trainable_variables)
    path = tf.train.Checkpoint(model=model).write(tmp_path / "check")
    tf.train.Checkpoint(model=other).read(path).expect_partial()
    np.testing.assert_array_equal(
        other.layers[-1].class_embeddings(), model.layers[-1].class_embeddings()
    )
    health = other.layers[-1].sampler.list_health(other.layers[-1])
    assert health["started_at"] == 3
    if before == after:
        assert health["fitted_at"] == 0 and recall(other) == recall(model)
        return
    assert health["fitted_at"] == -1
    fit(other, 1)  # the next step, which searches
    assert recall(other) > 0.5
