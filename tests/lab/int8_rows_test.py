"""Tests of `lab.retrieval.int8_rows`."""

import numpy as np

from lab.retrieval import int8_rows
from tf_largeout.retrieval import BruteForceIndex


def test_recall_and_errors_are_those_of_the_rounded_rows():
    rng = np.random.default_rng(0)
    rows, queries = rng.standard_normal([2, 300, 20], np.float32)
    exact = BruteForceIndex().build(rows)
    rounded = BruteForceIndex(embeddings_dtype="int8").build(rows)
    assert int8_rows._recall(exact, exact, queries, 10) == 1
    assert 0.9 < int8_rows._recall(exact, rounded, queries, 10) < 1
    errors = int8_rows._errors(rows, 0.0, queries, rounded)
    assert 0 < errors["row_error"] < 0.02 and errors["logit_error"] < errors["logit_error_most"]
    labels = np.argmax(queries @ rows.T, axis=1)
    assert int8_rows._p1(exact, queries, labels) == 100
