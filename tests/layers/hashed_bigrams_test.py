"""`HashedBigrams` against a loop over pairs, as a Keras layer, and its errors."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.slow import slow_but
from tf_largeout import layers

ROWS, BUCKETS = 50, 1_000


def _bigrams(ids, input_dim, num_buckets, padding_id):
    """Returns the ids of a bag and then the ids of its pairs, computed with Python integers."""
    result = [int(one) for one in ids]
    for first, second in zip(result[:-1], result[1:], strict=True):
        key = (first * input_dim + second) * 0x9E3779B97F4A7C15 % 2**64
        pair = input_dim + (key >> 33) % num_buckets
        result.append(padding_id if padding_id in (first, second) else pair)
    return result


def _ids(shape=(6, 5), rows=ROWS):
    ids = np.random.default_rng(2).integers(1, rows, shape)
    ids[1, 3:], ids[2] = 0, 0
    return ids


@pytest.mark.parametrize(
    "rows, dtype, padding_id",
    slow_but(
        [*((2**31 - 1, "int32", one) for one in (0, 7, None)), (ROWS, "int64", 0)],
        itertools.product([ROWS, 2**31 - 1], ["int32", "int64"], [0, 7, None]),
    ),
)
def test_hashes_equal_those_of_a_loop_in_python(rows, dtype, padding_id):
    ids = _ids(rows=rows)
    layer = layers.HashedBigrams(rows, BUCKETS, padding_id)
    expected = [_bigrams(bag, rows, BUCKETS, padding_id) for bag in ids]
    for call in (layer, tf.function(layer)):
        np.testing.assert_array_equal(call(tf.constant(ids, dtype)), expected)


def test_pairs_spread_over_the_buckets_and_depend_on_the_order():
    first, second = (part.ravel() for part in np.meshgrid(np.arange(1, 41), np.arange(1, 41)))
    pairs = layers.HashedBigrams(ROWS, BUCKETS)(np.stack([first, second], axis=1))[:, 2]
    counts = np.bincount(pairs.numpy() - ROWS, minlength=BUCKETS)
    assert len(counts) == BUCKETS
    # With 1,600 balls in 1,000 bins, a share of e^-1.6 = 0.20 stays empty and none gets many.
    assert np.mean(counts == 0) < 0.22 and counts.max() < 10
    there, back = layers.HashedBigrams(ROWS, 2**30)(np.array([[3, 4], [4, 3]]))[:, 2].numpy()
    assert there != back


def test_more_dimensions_and_single_ids_work():
    layer = layers.HashedBigrams(ROWS, BUCKETS)
    ids = np.random.default_rng(0).integers(0, ROWS, (2, 3, 4))
    expected = np.reshape(layer(ids.reshape(6, 4)), (2, 3, 7))
    np.testing.assert_array_equal(layer(ids), expected)
    np.testing.assert_array_equal(layer(np.array([[5], [0]])), [[5], [0]])


@pytest.mark.parametrize(
    "in_graph, bad, padding_id",
    slow_but(
        [
            *itertools.product([False], [ROWS, -1, 2**40], [0, -7, None]),
            (True, ROWS, 0),
            (True, -1, -7),
        ],
        itertools.product([False, True], [ROWS, -1, 2**40], [0, -7, None]),
    ),
)
def test_an_id_out_of_range_raises_an_error(in_graph, bad, padding_id):
    layer = layers.HashedBigrams(ROWS, BUCKETS, padding_id)
    call = tf.function(layer) if in_graph else layer
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"(?s)below input_dim=50.*{bad}"):
        call(tf.constant([[1, bad, 2]], tf.int64))
    if padding_id is not None:
        assert call(tf.constant([[1, padding_id]], tf.int64))[0, 1] == padding_id


def test_a_saved_model_with_an_embedding_bag_loads(tmp_path):
    inputs = keras.Input([None], dtype="int32")
    pairs = layers.HashedBigrams(ROWS, BUCKETS)(inputs)
    assert pairs.shape == (None, None) and pairs.dtype == "int64"
    model = keras.Model(inputs, layers.EmbeddingBag(ROWS + BUCKETS, 4)(pairs))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(_ids()), model(_ids()))
    assert layers.HashedBigrams(ROWS, BUCKETS).compute_output_shape((2, 3, 4)) == (2, 3, 7)


def test_a_sequential_without_input_passes_large_ids_unchanged():
    rows = 2**25
    model = keras.Sequential([layers.HashedBigrams(rows, BUCKETS)])
    ids = np.array([[2**24 + 1, 3]])
    np.testing.assert_array_equal(model(ids), [_bigrams(ids[0], rows, BUCKETS, 0)])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((0, 10), "`input_dim` must be a positive"),
        ((2**31 + 1, 10), "`input_dim` must be"),
        ((10, 0), "`num_buckets` must be a positive"),
        ((10, 2.5), "`num_buckets` must be a positive"),
        ((10, 10, "0"), "`padding_id` must be an integer or None"),
    ],
)
def test_invalid_arguments_raise_an_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        layers.HashedBigrams(*arguments)


@pytest.mark.parametrize(
    "ids, message",
    [
        (np.ones((2, 3), "float32"), "must be integers.*dtype float32"),
        (np.ones(3, "int32"), r"\[batch, ..., n\].*shape \(3,\)"),
        (tf.ragged.constant([[1, 2], [3]]), "ragged.*to_tensor"),
    ],
)
def test_invalid_inputs_raise_an_error(ids, message):
    with pytest.raises(ValueError, match=message):
        layers.HashedBigrams(ROWS, BUCKETS)(ids)
