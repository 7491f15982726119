"""Draws of shards, compared with counts."""

import numpy as np
import tensorflow as tf

from tf_largeout.samplers.hard_negative_sampler import draw_shards, seed_of

SEED = tf.constant([7, 0], tf.int64)


def test_seeds_of_several_draws_differ():
    seeds = {tuple(seed_of(SEED, number).numpy()) for number in range(300)}
    assert len(seeds) == 300 and tuple(SEED.numpy()) in seeds


def test_shards_are_drawn_in_proportion_to_their_shares():
    shares = np.array([[0.2, 0.5, 0.3], [1.0, 0.0, 9.0], [0.0, 0.0, 4.0]])
    drawn = draw_shards(tf.constant(shares), 20_000, SEED).numpy()
    for row, share in zip(drawn, shares, strict=True):
        counts, expected = np.bincount(row, minlength=3), 20_000 * share / share.sum()
        assert np.all(np.abs(counts - expected) <= 5 * np.sqrt(expected))
