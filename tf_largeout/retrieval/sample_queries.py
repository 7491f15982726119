"""Queries on which an index measures its recall."""

import numpy as np
import tensorflow as tf

from tf_largeout.retrieval.list_numbers import with_rounding
from tf_largeout.retrieval.rows import Rows

_MEASURED_QUERIES = 2048


def some_of(queries: tf.Tensor) -> tf.Tensor:
    """Returns the queries to measure, chosen at random, because queries may be sorted."""
    places = np.random.default_rng(0).permutation(len(queries))[:_MEASURED_QUERIES]
    return tf.gather(queries, np.sort(places))


def noisy_rows(rows: Rows) -> tf.Tensor:
    """Returns class rows with noise of half their length, as typical queries."""
    draws = np.random.default_rng(0)
    count = min(_MEASURED_QUERIES, rows.matrix.num_classes)
    drawn = draws.choice(rows.matrix.num_classes, count, replace=False)
    found = rows.matrix.rows(tf.constant(drawn)).numpy()
    noise = draws.standard_normal(found.shape, np.float32) / np.sqrt(found.shape[1])
    length = np.linalg.norm(found, axis=1, keepdims=True)
    return tf.constant(found + 0.5 * length * noise, tf.float32)


def lowest_of_best(rows: Rows, queries: tf.Tensor, k: int) -> np.ndarray:
    """Returns the scores `[n, 1]` from which a class counts as one of the best `k`."""
    scores = rows.top_k(queries, min(k, len(rows.alive)))[0].numpy()
    return with_rounding(scores[:, -1:])
