"""Shards of draws and of found classes, compared with counts and a merge in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tf_largeout.papers.lsh.class_tables import merge_found, spread_shards

SEED = tf.constant([7, 0], tf.int64)


@pytest.mark.parametrize("sizes", [[5, 0, 3, 92], [0, 0, 7], [1, 1, 1], [2**40, 3, 2**41]])
def test_draws_are_spread_evenly_over_shards(sizes):
    owners = spread_shards(tf.constant(sizes, tf.int64), 1_000, SEED).numpy()
    for begin in (0, 300, 700):  # Of any consecutive draws.
        counts = np.bincount(owners[begin : begin + 200], minlength=len(sizes))
        expected = 200 * np.array(sizes) / sum(sizes)
        assert np.all(np.abs(counts - expected) <= 4)
        assert np.all(counts[np.array(sizes) == 0] == 0)


def test_each_draw_has_each_shard_with_its_probability():
    sizes = tf.constant([1, 2, 5], tf.int64)

    @tf.function
    def draws():
        seeds = tf.range(400, dtype=tf.int64)
        return tf.map_fn(lambda number: spread_shards(sizes, 6, [number, 3]), seeds, tf.int32)

    owners = draws().numpy()
    for place in np.transpose(owners):
        counts, expected = np.bincount(place, minlength=3), 400 * np.array([1, 2, 5]) / 8
        assert np.all(np.abs(counts - expected) < 5 * np.sqrt(expected))


def test_shards_are_in_range_if_all_weights_are_zero():
    owners = spread_shards(tf.zeros([3], tf.int64), 5, SEED).numpy()
    assert owners.min() >= 0 and owners.max() < 3


# For each of three shards: ids of two examples, and their numbers of uniform draws.
FOUND = [
    ([[10, 11, 12, 13], [10, 11, -1, -1]], [0, 2]),
    ([[20, 21, 22, 23], [20, -1, -1, -1]], [2, 0]),
    ([[30, 31, -1, -1], [-1, -1, -1, -1]], [1, 0]),
]


def merged(num_met, seed):
    ids, filled = zip(*FOUND, strict=True)
    found = merge_found(
        [tf.constant(one, tf.int64) for one in ids],
        [tf.constant(one, tf.int32) for one in filled],
        [tf.constant(one, tf.int64) for one in num_met],
        [100, 200, 50],
        seed,
    )
    return [tensor.numpy() for tensor in found]


@pytest.mark.parametrize("seed", [None, SEED])
def test_found_classes_are_merged_by_frequency_with_uniform_draws_last(seed):
    ids, num_filled = merged([[3, 0], [3, 5], [1, 0]], seed)
    assert num_filled.tolist() == [0, 2]
    assert ids[1].tolist()[:1] == [20] and sorted(ids[1].tolist()[1:3]) == [10, 11]
    assert ids[1, 3] == -1
    of_first = [one for one in ids[0] if one // 10 == 1]
    assert of_first == sorted(of_first) and len(of_first) >= 1


@pytest.mark.parametrize("met, expected", [([99, 1, 1], 4), ([50, 50, 1], 2), ([1, 99, 1], 1)])
def test_a_shard_contributes_in_proportion_to_its_entries(met, expected):
    ids, num_filled = merged([[one, 1] for one in met], None)
    assert np.count_nonzero(ids[0] // 10 == 1) == expected and num_filled[0] == 0


@pytest.mark.slow
def test_uniform_draws_are_in_proportion_to_shard_sizes():
    uniform = [tf.range(40, dtype=tf.int64)[tf.newaxis] + first for first in (0, 100, 300)]
    filled = [tf.constant([40])] * 3
    ids, num_filled = merge_found(uniform, filled, [tf.constant([0])] * 3, [100, 200, 50], SEED)
    counts = np.bincount(np.digitize(ids[0], [100, 300]), minlength=3)
    expected = 40 * np.array([100, 200, 50]) / 350
    assert num_filled[0] == 40 and np.all(np.abs(counts - expected) <= 1.5)
