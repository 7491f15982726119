"""How far a result of low precision may be off: twice the error of the naive computation."""

import numpy as np
import tensorflow as tf


def naive_logits(features, embeddings, bias, dtype):
    """Logits as they come out if every number is of `dtype`, as float64."""
    features, embeddings, bias = (tf.cast(x, dtype) for x in (features, embeddings, bias))
    logits = tf.matmul(features, embeddings, transpose_b=True) + bias
    return tf.cast(logits, tf.float64).numpy()


def problem_of_logits(logits):
    """Features, embeddings and a bias whose exact logits are `logits`, for an oracle."""
    return np.eye(len(logits)), logits.T, np.zeros(logits.shape[1])


def assert_within_twice_the_naive_error(actual, naive, exact):
    """Checks the largest error of `actual` against that of `naive`."""
    error, naive_error = (
        np.max(np.abs(np.asarray(tf.cast(found, tf.float64)) - exact))
        for found in (actual, naive)
    )
    assert error <= 2 * naive_error, f"off by {error}, the naive computation by {naive_error}"
