"""`predict_top_k` for the last position of sequences."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tests.replicas import two_replicas
from tests.slow import slow_but
from tf_largeout import layers
from tf_largeout.retrieval import BruteForceIndex, predict_top_k

N, DIM, K = 40, 8, 5
# Padded on the right, on the left, not at all, in the middle.
WORDS = np.array([[3, 5, 0, 0], [0, 0, 7, 2], [1, 2, 3, 4], [9, 0, 4, 0], [6, 0, 0, 0]])
LAST = [1, 3, 3, 2, 0]
SEEN = [{5, 3}, {2}, set(), {4, 9, 17}, {6}]
FORMS = {
    "sets": SEEN,
    "lists": [sorted(row) for row in SEEN],
    "ragged": tf.ragged.constant([sorted(row) for row in SEEN], tf.int64),
    "padded": harness.pad([sorted(row) for row in SEEN]),
}


def new_model(mask_zero=True):
    table = keras.layers.Embedding(N, DIM, "normal", mask_zero=mask_zero)
    head = layers.LargeOutput(N, bias_initializer="normal")
    return keras.Sequential([keras.Input([4], dtype="int32"), table, head])


@pytest.fixture(scope="module")
def model():
    return new_model()


def expected(model, last, exclude=None):
    logits = model.predict(WORDS, verbose=0)[np.arange(len(WORDS)), last]
    for row, ids in enumerate(exclude or []):
        logits[row, sorted(ids)] = -np.inf
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :K]
    return np.take_along_axis(logits, ids, axis=1), ids


def assert_equal(found, scores_and_ids):
    np.testing.assert_allclose(found[0], scores_and_ids[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[1], scores_and_ids[1])


@pytest.mark.parametrize(
    "form, has_index",
    slow_but([(None, False)], itertools.product([None, *FORMS], [False, True])),
)
def test_the_last_position_that_is_not_masked_is_used(model, form, has_index):
    index, head = None, model.layers[-1]
    if has_index:
        index = BruteForceIndex().build(head.class_embeddings(), head.bias)
    exclude = None if form is None else FORMS[form]
    found = predict_top_k(
        model, WORDS, K, exclude, None, index, batch_size=2, verbose=0, positions="last"
    )
    assert_equal(found, expected(model, LAST, None if form is None else SEEN))


def test_without_a_mask_the_last_position_is_used():
    one = new_model(mask_zero=False)
    found = predict_top_k(one, WORDS, K, SEEN, verbose=0, positions="last")
    assert_equal(found, expected(one, [3] * 5, SEEN))


def test_a_sequence_of_padding_has_an_empty_result(model):
    scores, ids = predict_top_k(model, 0 * WORDS[:3], K, verbose=0, positions="last")
    assert (ids == -1).all() and np.isneginf(scores).all()


def test_no_sequences_give_an_empty_result(model):
    exclude = FORMS["ragged"][:0]
    scores, ids = predict_top_k(model, WORDS[:0], K, exclude, verbose=0, positions="last")
    assert scores.shape == ids.shape == (0, K)


@pytest.mark.slow
def test_replicas_support_exclusions_of_different_lengths():
    with two_replicas().scope():
        one = new_model()
    found = predict_top_k(one, WORDS, K, SEEN, batch_size=4, verbose=0, positions="last")
    assert_equal(found, expected(one, LAST, SEEN))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"exclude": SEEN}, "list of ids for each position.*positions='last'"),
        ({"positions": "first"}, "`positions` must be one of"),
        (
            {"positions": "last", "exclude": SEEN[:4]},
            "`exclude` must have a list of ids for each",
        ),
    ],
)
def test_invalid_arguments_raise_an_error(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        predict_top_k(model, WORDS, K, verbose=0, **arguments)


def test_a_model_without_sequences_has_no_last_position():
    one = keras.Sequential([keras.Input([DIM]), layers.LargeOutput(N)])
    with pytest.raises(ValueError, match="model of sequences.*Omit `positions`"):
        predict_top_k(one, np.ones([2, DIM]), K, verbose=0, positions="last")
