"""Samplers that search, with the classes in shards: the same counts, recall and learning."""

import numpy as np
import pytest
import tensorflow as tf

from tests.integration.sharded_models import (
    BATCH,
    EACH_COUNT,
    FEATURES,
    M,
    N,
    fit,
    model_of,
    samples,
)

pytestmark = pytest.mark.portable


@EACH_COUNT
def test_a_search_of_all_lists_finds_the_best_in_order(num_shards):
    """Scores are of rows at 8 bits a number, so neighbours may change places."""
    model = model_of("lists: alone", num_shards, num_probes=1000)
    head = model.layers[-1]
    head.sampler.rebuild(head)
    found = head.sampler.search(FEATURES, tf.zeros([BATCH, 0], tf.int64), head).numpy()
    scores = model.layers[-1].class_matrix.dots(FEATURES, found).numpy()
    best, _ = head.top_k(FEATURES, M)
    np.testing.assert_allclose(scores, best, atol=0.03)
    assert all(len(set(row)) == M for row in found)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["lists: head", "lists: drawn head", "lists: draws"])
def test_the_estimate_of_the_partition_function_is_unbiased(form):
    """Heads count once, and tails and draws by one over their counts."""
    model = model_of(form, 3)
    fit(model, 30)
    dense, head = model.layers
    logits = head(FEATURES, training=False).numpy()
    partition, estimates = np.exp(logits).sum(axis=1), []
    for values in samples(model, np.full([BATCH, 1], -1), 300):
        parts = values if form != "lists: draws" else [values]
        in_head = np.zeros([BATCH, N], bool)
        total = np.zeros(BATCH)
        for ids, _, counts in parts:
            ids, counts = (np.broadcast_to(x, [BATCH, x.shape[-1]]) for x in (ids, counts))
            taken = ids >= 0
            if ids is not parts[0][0] and form != "lists: draws":
                taken &= ~np.take_along_axis(in_head, np.maximum(ids, 0), axis=1)
            terms = np.exp(np.take_along_axis(logits, np.maximum(ids, 0), axis=1)) / counts
            total += np.where(taken, terms, 0).sum(axis=1)
            rows, places = np.nonzero(taken)
            in_head[rows, ids[rows, places]] = True
        estimates.append(total)
    error = np.std(estimates, axis=0) / np.sqrt(300)
    assert np.all(np.abs(np.mean(estimates, axis=0) - partition) < 5 * error)


def test_rows_with_nan_are_never_found():
    model = model_of("lists: alone", 3, num_probes=1000)
    head = model.layers[-1]
    for number in range(3):
        rows = getattr(head, f"embeddings_{number}")
        values = rows.numpy()
        values[::3] = np.nan
        rows.assign(values)
    head.sampler.rebuild(head)
    found = head.sampler.search(FEATURES, tf.zeros([BATCH, 0], tf.int64), head).numpy()
    assert np.all(np.isfinite(head.class_embeddings().numpy()[found]))
