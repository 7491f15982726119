"""Random numbers that are the same with and without XLA."""

import numpy as np
import pytest
import tensorflow as tf

from tf_largeout.ops import random_numbers

DRAWS = {
    "floats": lambda seed: random_numbers.uniform_floats([500, 3], seed),
    "ids": lambda seed: random_numbers.uniform_ids([500, 3], seed, 1_000_003),
    "seeds": lambda seed: tf.stack(random_numbers.two_seeds(seed)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_are_bit_identical_under_xla(name):
    compiled = tf.function(DRAWS[name], jit_compile=True)
    for seed in ([0, 0], [3, -12345], [-(2**63), 2**63 - 1]):
        seed = tf.constant(seed, tf.int64)
        expected, found = DRAWS[name](seed), compiled(seed)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_numbers_are_those_of_tensorflow():
    seed = tf.constant([5, 6], tf.int64)
    uniform = tf.random.stateless_uniform
    np.testing.assert_array_equal(
        DRAWS["floats"](seed), uniform([500, 3], seed, dtype="float64")
    )
    of_tensorflow = uniform([500, 3], seed, maxval=1_000_003, dtype="int64")
    np.testing.assert_array_equal(DRAWS["ids"](seed), of_tensorflow)
