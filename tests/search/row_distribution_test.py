"""Draws from the lists of an inverted file, compared with their distribution."""

import numpy as np
import pytest
import tensorflow as tf

from tests.reference import inverted_file as reference
from tests.search.rows import BIAS, DIM, NUM_ROWS, QUERIES, ROWS, kept_weights
from tf_largeout.search import inverted_file
from tf_largeout.search.inverted_file import InvertedFile

pytestmark = pytest.mark.portable

BATCH = len(QUERIES)
ALL_ROWS = np.tile(np.arange(NUM_ROWS), (BATCH, 1))
SEED = tf.constant([3, 4], tf.int64)


def built(**kwargs):
    """Returns an inverted file and its weights by name."""
    weights = []
    file = InvertedFile(knows_lists=True, **kwargs)
    file.build(NUM_ROWS, DIM, kept_weights(weights))
    return file, {weight.name: weight for weight in weights}


def fitted(rows=ROWS, **kwargs):
    file, weights = built(**kwargs)
    file.fit(tf.Variable(rows), tf.Variable(BIAS))
    return file, weights


def written_out(weights, queries=QUERIES):
    state = (weights[name].numpy() for name in ("means", "mean_bias", "offsets", "ids"))
    means, mean_bias, offsets, ids = state
    return reference.row_probabilities(
        queries, means, mean_bias, offsets.astype(np.int64), ids.astype(np.int64)
    )


def check_counts(draws, probabilities):
    """Chi-square test of the draws per query, with at least 20 expected draws per group."""
    for ids, expected in zip(draws, probabilities * draws.shape[1], strict=True):
        order = np.argsort(expected)
        groups = np.cumsum(expected[order]) // 20
        starts = np.unique(groups, return_index=True)[1]
        counted = np.bincount(ids, minlength=len(expected))[order]
        expected, counted = (np.add.reduceat(x, starts) for x in (expected[order], counted))
        chi_square, freedom = np.sum((counted - expected) ** 2 / expected), len(starts) - 1
        assert freedom > 3 and chi_square < freedom + 5 * np.sqrt(2 * freedom)


def test_probabilities_equal_the_formula_and_sum_to_one():
    file, weights = fitted()
    found = file.distribution(tf.constant(QUERIES)).probabilities(ALL_ROWS).numpy()
    np.testing.assert_allclose(found, written_out(weights), rtol=1e-4)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("num_lists", [1, 7, None, NUM_ROWS])
def test_draws_follow_their_probabilities(num_lists):
    file, weights = fitted(num_lists=num_lists)
    distribution = file.distribution(tf.constant(QUERIES))
    ids, probabilities = (tensor.numpy() for tensor in distribution.draw(20_000, SEED))
    expected = written_out(weights)
    check_counts(ids, expected)
    np.testing.assert_allclose(
        probabilities, np.take_along_axis(expected, ids, axis=1), rtol=1e-4
    )
    np.testing.assert_array_equal(probabilities, distribution.probabilities(ids))


def test_draws_are_nearer_to_the_softmax_than_uniform_draws():
    centers = np.random.default_rng(1).normal(size=(30, DIM))
    rows = centers[np.arange(NUM_ROWS) % 30] + 0.3 * ROWS
    file, weights = fitted(rows.astype("float32"))
    logits = QUERIES @ rows.T + BIAS
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)

    def draws_worth(q):  # The effective sample size as a share of the draws.
        return np.median(1 / np.sum(softmax**2 / q, axis=1))

    assert draws_worth(written_out(weights)) > 4 * draws_worth(1 / NUM_ROWS)


def test_before_the_first_fit_all_rows_are_equally_likely():
    distribution = built()[0].distribution(tf.constant(QUERIES))
    ids, probabilities = distribution.draw(20_000, SEED)
    check_counts(ids.numpy(), np.full([BATCH, NUM_ROWS], 1 / NUM_ROWS))
    for found in (probabilities, distribution.probabilities(ALL_ROWS)):
        np.testing.assert_allclose(found, 1 / NUM_ROWS, rtol=1e-6)


def test_queries_that_overflow_draw_uniformly_and_change_no_others():
    file, weights = fitted()
    queries = QUERIES.copy()
    queries[0], queries[1, 0] = 3e38, np.nan
    distribution = file.distribution(tf.constant(queries))
    ids, probabilities = (tensor.numpy() for tensor in distribution.draw(500, SEED))
    assert np.all((ids >= 0) & (ids < NUM_ROWS))
    np.testing.assert_allclose(probabilities[1], 1 / NUM_ROWS, rtol=1e-6)
    expected = np.take_along_axis(written_out(weights), ids, axis=1)
    np.testing.assert_allclose(probabilities[2:], expected[2:], rtol=1e-4)


def test_rows_that_are_not_finite_are_drawn_with_known_probabilities():
    rows = np.where(np.arange(NUM_ROWS)[:, None] % 3, ROWS, np.nan)
    distribution = fitted(rows)[0].distribution(tf.constant(QUERIES))
    found = distribution.probabilities(ALL_ROWS).numpy()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    check_counts(distribution.draw(20_000, SEED)[0].numpy(), found.astype(np.float64))


@pytest.mark.parametrize("in_graph", [False, True])
def test_the_list_of_each_row_follows_the_lists(in_graph, monkeypatch):
    monkeypatch.setattr(inverted_file, "_LEAST_INTERVAL", 3)
    monkeypatch.setattr(inverted_file, "_REASSIGNED_PER_STEP", NUM_ROWS // 5)
    (file, weights), plain, others = built(), InvertedFile(), []
    plain.build(NUM_ROWS, DIM, kept_weights(others))
    rows, random = tf.Variable(ROWS), np.random.default_rng(1)

    def step():
        file.keep_up(rows)
        plain.keep_up(rows)

    step = tf.function(step) if in_graph else step
    seen = []
    for _ in range(10):
        step()
        rows.assign_add(0.5 * random.normal(size=ROWS.shape))
        found = file.distribution(tf.constant(QUERIES)).probabilities(ALL_ROWS)
        np.testing.assert_allclose(found, written_out(weights), rtol=1e-4)
        seen.append(weights["list_of_row"].numpy())
    assert [np.any(a != b) for a, b in zip(seen, seen[1:], strict=False)] == [
        False, False, True, False, False, True, False, False, True
    ]  # fmt: skip
    for weight in others:  # The state of a file without the list of each row.
        np.testing.assert_array_equal(weight, weights[weight.name])
