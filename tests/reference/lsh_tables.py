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
