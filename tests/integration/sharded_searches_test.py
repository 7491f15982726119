"""Samplers that search, with the classes in shards: the same counts, recall and learning."""

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
    OTHER_SHARDS,
    M,
    N,
    assert_counts_are_expected,
    fit,
    new_model,
    read_into,
    recall,
    samples,
)

pytestmark = pytest.mark.portable

FORMS = {
    "head": {"num_hard": 8, "start_step": 3},
    "few lists": {"num_hard": 8, "start_step": 3, "num_lists": 30, "num_probes": 4},
    "alone": {"num_hard": None},
    "draws": {"num_hard": None, "select": "draw"},
    "drawn head": {"num_hard": 8, "start_step": 3, "select": "draw"},
}


def model_of(form, num_shards, rate=0.02, **kwargs):
    sampler = tflo.samplers.InvertedFileSampler(M, seed=1, **{**FORMS[form], **kwargs})
    return new_model(num_shards, sampler, rate)


@EACH_COUNT
def test_a_search_of_all_lists_finds_the_best_in_their_order(num_shards):
    """Scores are of rows at 8 bits a number, so neighbours may change places."""
    model = model_of("alone", num_shards, num_probes=1000)
    head = model.layers[-1]
    head.sampler.rebuild(head)
    found = head.sampler.search(FEATURES, tf.zeros([BATCH, 0], tf.int64), head).numpy()
    scores = model.layers[-1].class_matrix.dots(FEATURES, found).numpy()
    best, _ = head.top_k(FEATURES, M)
    np.testing.assert_allclose(scores, best, atol=0.03)
    assert all(len(set(row)) == M for row in found)


@pytest.mark.slow
@pytest.mark.parametrize("form, num_shards", [("head", 3), ("few lists", 7)])
def test_recall_and_precision_are_those_of_one_shard(form, num_shards):
    found = []
    for count in (1, num_shards):
        model = model_of(form, count, rate=0.05)
        for epoch in range(3):
            fit(model, 150, seed=epoch)
        labels = np.arange(N)
        precision = model.evaluate(CLASSES, labels, verbose=0, return_dict=True)
        found.append((recall(model), precision["precision_at_1"]))
    (one_recall, one_precision), (other_recall, other_precision) = found
    assert other_recall > one_recall - 0.05 and one_recall > 0.5
    assert abs(other_precision - one_precision) < 0.05 and one_precision > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("num_shards, is_fitted", [(2, True), (3, True), (3, False)])
def test_reported_counts_are_those_of_the_draws(num_shards, is_fitted):
    model = model_of("draws", num_shards)
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
    assert_counts_are_expected(drawn, expected, num_fixed=BATCH)
    if not is_fitted:
        np.testing.assert_allclose(expected, 150 * M / N, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["head", "drawn head", "draws"])
def test_the_estimate_of_the_partition_function_is_unbiased(form):
    """Heads count once, and tails and draws by one over their counts."""
    model = model_of(form, 3)
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


@pytest.mark.slow
@pytest.mark.parametrize("form", ["draws", "drawn head"])
def test_training_learns_with_other_forms(form):
    model = model_of(form, 3, rate=0.05)
    fit(model, 200)
    loss, precision = model.evaluate(CLASSES, np.arange(N), verbose=0)
    assert loss < 0.7 * np.log(N) and precision > 0.15


def test_rows_that_are_no_numbers_are_never_found():
    model = model_of("alone", 3, num_probes=1000)
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
@pytest.mark.slow
@pytest.mark.parametrize("before", [2, 40])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, before):
    harness.assert_resumed_equals_uninterrupted(
        lambda: model_of("head", 3),
        lambda model: fit(model, before, seed=1),
        lambda model: fit(model, 50, seed=2),  # over a reassignment
        tmp_path,
    )


@pytest.mark.slow
@pytest.mark.parametrize("before, after, kind", OTHER_SHARDS)
def test_another_number_of_shards_goes_on_with_new_lists(tmp_path, before, after, kind, caplog):
    model, other = model_of("head", before), model_of("head", after)
    fit(model, 10)
    read_into(other, model, tmp_path, kind)
    said = "another number of shards" in caplog.text
    assert said == (kind == "file" and before != after)
    head = other.layers[-1]
    assert head.sampler.health(head)["started_at"] == 3
    assert head.sampler.health(head)["fitted_at"] == (0 if before == after else -1)
    if before == after:
        assert recall(other) == recall(model)
        return
    fit(other, 1)  # the next step, which searches
    assert recall(other) > 0.5
    if kind == "file":
        assert head.sampler.health(head)["fitted_at"] == 0
