"""Bags of embeddings, one id at a time, in float64, from the docstring's formulas."""

import numpy as np


def embedding_bag(bags, weights, table, combiner):
    """`bags` and `weights` are lists of lists; padding is left out already."""
    rows = []
    for ids, ws in zip(bags, weights, strict=True):
        total, of_weights, of_squares = np.zeros(table.shape[1]), 0.0, 0.0
        for i, w in zip(ids, ws, strict=True):
            total += float(w) * np.float64(table[i])
            of_weights += float(w)
            of_squares += float(w) ** 2
        divisor = {"sum": 1.0, "mean": of_weights, "sqrtn": of_squares**0.5}[combiner]
        rows.append(total / divisor if divisor else np.zeros(table.shape[1]))
    return np.array(rows)
