"""Embedding bags by the formulas of the docstring, one id at a time, in float64."""

import numpy as np


def embedding_bag(bags, weights, table, combiner):
    """Combines the rows of each bag. `bags` and `weights` are unpadded lists of lists."""
    rows = []
    for ids, ws in zip(bags, weights, strict=True):
        total, sum_weights, sum_squares = np.zeros(table.shape[1]), 0.0, 0.0
        for i, w in zip(ids, ws, strict=True):
            total += float(w) * np.float64(table[i])
            sum_weights += float(w)
            sum_squares += float(w) ** 2
        divisor = {"sum": 1.0, "mean": sum_weights, "sqrtn": sum_squares**0.5}[combiner]
        rows.append(total / divisor if divisor else np.zeros(table.shape[1]))
    return np.array(rows)
