"""`InvertedFile` of a variable, without a layer or sampler."""

import numpy as np
import pytest
import tensorflow as tf

from tests.search.rows import (
    BIAS,
    DIM,
    NUM_ROWS,
    QUERIES,
    ROWS,
    K,
    add_weight,
    brute_force,
    kept_weights,
    recall,
)
from tf_largeout.search import inverted_file
from tf_largeout.search.inverted_file import InvertedFile, health_of

pytestmark = pytest.mark.portable

EVERY_LIST = 10**6


def built(num_lists=None, make_weight=add_weight):
    file = InvertedFile(num_lists)
    file.build(NUM_ROWS, DIM, make_weight)
    return file


def fitted(rows=ROWS, bias=BIAS, **kwargs):
    file = built(**kwargs)
    file.fit(tf.Variable(rows), None if bias is None else tf.Variable(bias))
    return file


def found(file, num_probes=EVERY_LIST):
    return file.search(QUERIES, K, num_probes)[1].numpy()


def test_nothing_is_found_before_the_first_fit():
    scores, ids = built().search(QUERIES, K, 16)
    np.testing.assert_array_equal(ids, -1)
    np.testing.assert_array_equal(scores, -np.inf)


@pytest.mark.parametrize("bias", [None, BIAS])
def test_a_search_of_all_lists_equals_brute_force_up_to_8_bit_rounding(bias):
    file = fitted(bias=bias)
    exact, exact_scores = brute_force(ROWS, 0 if bias is None else bias)
    scores, ids = (tensor.numpy() for tensor in file.search(QUERIES, K, EVERY_LIST))
    assert recall(ids, exact) > 0.95
    np.testing.assert_allclose(scores, exact_scores, atol=0.02 * np.abs(exact_scores).max())
    np.testing.assert_array_equal(np.sort(-scores, axis=1), -scores)


def test_recall_grows_with_the_number_of_lists():
    file, (exact, _) = fitted(), brute_force(ROWS, BIAS)
    few, some, most = (recall(found(file, probes), exact) for probes in (2, 16, 64))
    assert few < some < most
    assert some > 0.4 and most > 0.85


@pytest.mark.parametrize("num_lists, expected", [(None, 155), (7, 7), (10**6, NUM_ROWS)])
def test_the_default_number_of_lists_is_four_times_the_square_root(num_lists, expected):
    assert health_of([fitted(num_lists=num_lists)])["num_lists"] == expected


@pytest.mark.parametrize("in_graph", [False, True])
def test_upkeep_follows_rows_that_change(in_graph, monkeypatch):
    monkeypatch.setattr(inverted_file, "_LEAST_INTERVAL", 2)
    monkeypatch.setattr(inverted_file, "_REASSIGNED_PER_STEP", NUM_ROWS)
    file, rows, bias = built(), tf.Variable(ROWS), tf.Variable(BIAS)

    def step():
        file.keep_up(rows, bias)

    step = tf.function(step, autograph=False) if in_graph else step
    step()
    assert health_of([file])["fitted_at"] == 0
    assert recall(found(file), brute_force(ROWS, BIAS)[0]) > 0.95
    changed = (ROWS + np.random.default_rng(1).normal(size=ROWS.shape)).astype("float32")
    rows.assign(changed)
    exact = brute_force(changed, BIAS)[0]
    assert recall(found(file), exact) < 0.8
    for _ in range(4):
        step()
    assert recall(found(file), exact) > 0.95
    assert recall(found(file, 64), exact) > 0.7


def test_a_fit_follows_rows_that_were_replaced():
    file, rows = built(), tf.Variable(ROWS)
    file.fit(rows)
    rows.assign(-ROWS)
    file.fit(rows)
    exact = brute_force(-ROWS)[0]
    assert recall(found(file), exact) > 0.95 and recall(found(file, 64), exact) > 0.85


def test_the_weights_are_the_whole_state():
    weights, others = [], []
    file, rows = built(make_weight=kept_weights(weights)), tf.Variable(ROWS)
    file.keep_up(rows)
    again = built(make_weight=kept_weights(others))
    for weight, value in zip(others, weights, strict=True):
        weight.assign(value)
    np.testing.assert_array_equal(found(again, 16), found(file, 16))
    assert health_of([again]) == health_of([file])
    assert [weight.name for weight in weights] == [
        "means", "mean_bias", "offsets", "ids", "codes", "scales", "schedule"
    ]  # fmt: skip


@pytest.mark.parametrize("bad", [0, 2.5, "many"])
def test_an_invalid_number_of_lists_raises_an_error(bad):
    with pytest.raises(ValueError, match=f"num_lists={bad!r}"):
        InvertedFile(bad)
