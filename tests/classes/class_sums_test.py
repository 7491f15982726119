"""Sums over all classes in blocks, compared with TensorFlow's dense operations."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.slow import slow_but
from tf_largeout.classes import blockwise
from tf_largeout.classes.class_sums import DenseRows
from tf_largeout.variables.class_rows import RowShard

N, DIM, BATCH = 150, 4, 7
RNG = np.random.default_rng(0)
ROWS, BIAS, FEATURES = (
    tf.constant(RNG.normal(size=shape), tf.float32) for shape in ((N, DIM), (N,), (BATCH, DIM))
)
WEIGHTS = tf.constant(RNG.normal(size=(2, BATCH)), tf.float32)


# The form of rows as they are read, and the scores of logits.
PLAIN = tf.identity, tf.identity
CAPPED = lambda rows: tf.math.l2_normalize(rows, axis=1), lambda logits: 2 * tf.tanh(logits / 2)


@pytest.mark.parametrize(
    "form, term, has_bias, graph",
    slow_but(
        [
            (PLAIN, tf.math.softplus, True, True),
            (PLAIN, None, False, False),
            (CAPPED, tf.math.softplus, True, False),
            (CAPPED, None, False, True),
        ],
        itertools.product(
            [PLAIN, CAPPED], [tf.math.softplus, None], [True, False], [True, False]
        ),
    ),
)
def test_sums_and_gradients_equal_those_of_dense_operations(
    form, term, has_bias, graph, monkeypatch
):
    bias = BIAS if has_bias else None
    monkeypatch.setattr(blockwise, "_NUMBERS_OF_A_BLOCK", 1)  # blocks of 64 classes
    inputs = [FEATURES, ROWS] + ([] if bias is None else [bias])

    def dense(features, rows, bias):
        logits = tf.matmul(features, form[0](rows), transpose_b=True)
        scores = form[1](logits if bias is None else logits + bias)
        total = tf.zeros([BATCH]) if term is None else tf.reduce_sum(term(scores), axis=1)
        return tf.reduce_logsumexp(scores, axis=1), total

    def in_blocks(features, rows, bias):
        table = DenseRows(RowShard(first=0, num_rows=N), rows, bias, form[0])
        return table.sums(features, form[1], term)

    def results(function):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            found = function(FEATURES, ROWS, bias)
            objective = tf.reduce_sum(WEIGHTS * tf.stack(found))
        return [*found, *tape.gradient(objective, inputs)]

    run = tf.function(results, autograph=False) if graph else results
    for found, expected in zip(run(in_blocks), results(dense), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
