"""Sums over all classes in blocks, compared with TensorFlow's dense operations."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.slow import slow_but
from tf_largeout.classes import blockwise
from tf_largeout.classes.class_sums import dot_products, sums_of_classes

N, DIM, BATCH = 150, 4, 7
RNG = np.random.default_rng(0)
ROWS, BIAS, FEATURES = (
    tf.constant(RNG.normal(size=shape), tf.float32) for shape in ((N, DIM), (N,), (BATCH, DIM))
)
WEIGHTS = tf.constant(RNG.normal(size=(2, BATCH)), tf.float32)


def soft_capped(features, rows, biases):
    return 2 * tf.tanh(dot_products(features, tf.math.l2_normalize(rows, axis=1), biases) / 2)


@pytest.mark.parametrize(
    "score, term, has_bias, graph",
    slow_but(
        [
            (dot_products, tf.math.softplus, True, True),
            (dot_products, None, False, False),
            (soft_capped, tf.math.softplus, True, False),
            (soft_capped, None, False, True),
        ],
        itertools.product(
            [dot_products, soft_capped], [tf.math.softplus, None], [True, False], [True, False]
        ),
    ),
)
def test_sums_and_gradients_equal_those_of_dense_operations(
    score, term, has_bias, graph, monkeypatch
):
    bias = BIAS if has_bias else None
    monkeypatch.setattr(blockwise, "_NUMBERS_OF_A_BLOCK", 1)  # blocks of 64 classes
    inputs = [FEATURES, ROWS] + ([] if bias is None else [bias])

    def dense(features, rows, bias):
        scores = score(features, rows, bias)
        total = tf.zeros([BATCH]) if term is None else tf.reduce_sum(term(scores), axis=1)
        return tf.reduce_logsumexp(scores, axis=1), total

    def in_blocks(features, rows, bias):
        return sums_of_classes(features, rows, bias, score, term)

    def results(function):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            found = function(FEATURES, ROWS, bias)
            objective = tf.reduce_sum(WEIGHTS * tf.stack(found))
        return [*found, *tape.gradient(objective, inputs)]

    run = tf.function(results, autograph=False) if graph else results
    for found, expected in zip(run(in_blocks), results(dense), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
