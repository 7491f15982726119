"""Slow oracles of hash tables."""

import collections

import numpy as np


def tables(codes, num_buckets):
    """Returns `offsets` and `ids` for codes `[num_tables, num_classes]`."""
    offsets, ids = [], []
    for row in codes:
        ids.append(np.argsort(row, kind="stable"))
        offsets.append(np.searchsorted(np.sort(row), np.arange(num_buckets + 1)))
    return np.array(offsets, np.uint32), np.array(ids, np.uint32)


def met(codes, query):
    """Counts how often each class occurs in the buckets `query` of one example."""
    counts = collections.Counter()
    for i, code in enumerate(query):
        if code >= 0:
            counts.update(np.flatnonzero(codes[i % len(codes)] == code).tolist())
    return counts


def collisions(queries, rows, num_hashes):
    """The expected number of queries in the SimHash bucket of each row of one table."""
    queries, rows = (
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        for vectors in (queries.astype(np.float64), rows.astype(np.float64))
    )
    angles = np.arccos(np.clip(queries @ rows.T, -1, 1))
    return np.sum((1 - angles / np.pi) ** num_hashes, axis=0)
