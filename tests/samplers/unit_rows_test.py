"""Searches of a layer with `normalize=True` compare features with rows of length 1."""

import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.slow import slow_but

N, DIM, BATCH, HARD = 3000, 16, 40, 16
RANDOM = np.random.default_rng(0)
CENTERS = RANDOM.normal(size=(N // 10, DIM))
NEAR = CENTERS[RANDOM.integers(N // 10, size=N)]
ROWS = (NEAR + RANDOM.normal(size=(N, DIM)) / 2).astype("float32")
FEATURES = ROWS[:BATCH] + RANDOM.normal(size=(BATCH, DIM)).astype("float32") / 4
SEARCHES = {
    "inverted_file": lambda: tflo.samplers.InvertedFileSampler(64, num_hard=HARD, seed=1),
    "lsh": lambda: tflo.samplers.LSHSampler(400, num_hard=HARD, seed=1),
}


def _found(name, lengths, num_shards=1, dtype=None):
    """Returns the classes that a search finds for each example, and their recall."""
    rows = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True) * lengths[:, np.newaxis]
    head = tflo.layers.LargeOutput(
        N,
        SEARCHES[name](),
        embeddings_initializer=rows,
        num_shards=num_shards,
        normalize=True,
        embeddings_dtype=dtype,
    )
    head.build((None, DIM))
    head.sampler.rebuild(head)
    queries = head.queries(tf.constant(FEATURES))
    found = head.sampler.search(queries, tf.zeros([BATCH, 0], tf.int64), head).numpy()
    best = head.top_k(FEATURES, HARD)[1].numpy()
    recall = np.mean([np.isin(own, ids).mean() for own, ids in zip(best, found, strict=True)])
    return np.sort(found, axis=1), recall


@pytest.mark.parametrize("num_shards", slow_but([3], [1, 3]))
@pytest.mark.parametrize("name", SEARCHES)
def test_rows_of_any_length_are_found_like_rows_of_equal_length(name, num_shards):
    equal, recall = _found(name, np.ones(N), num_shards)
    assert recall > {"inverted_file": 0.8, "lsh": 0.3}[name]
    # Powers of 2 change no bit of a cosine.
    lengths = 2.0 ** RANDOM.integers(-4, 5, N)
    np.testing.assert_array_equal(_found(name, lengths, num_shards)[0], equal)


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
def test_rows_in_bfloat16_of_any_length_are_found(name):
    _, equal = _found(name, np.ones(N), dtype="bfloat16")
    _, recall = _found(name, 10 ** RANDOM.uniform(-1, 1, N), dtype="bfloat16")
    assert recall > equal - 0.02
