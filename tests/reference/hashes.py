"""Locality-sensitive hashes from their definitions, in float64."""

import numpy as np


def simhash_agreement(x, y):
    """The probability that a random hyperplane does not separate x and y (Charikar 2002)."""
    cosine = x @ y / np.sqrt((x @ x) * (y @ y))
    return 1 - np.arccos(np.clip(cosine, -1, 1)) / np.pi


def wta_agreement(x, y, k):
    """The probability that k random coordinates have their highest at the same one.

    By counting: coordinate c wins in both where the k - 1 others are below it in both, of
    which there are choose(R_c, k - 1) sets among choose(dim, k).
    """
    below = np.array([np.sum((x < x[c]) & (y < y[c])) for c in range(len(x))], np.float64)
    share = np.full(len(x), k / len(x))
    for i in range(k - 1):
        share *= np.maximum(below - i, 0) / (len(x) - 1 - i)
    return share.sum()


def wta_values(vectors, coordinates):
    """Which of `coordinates` [..., k] is the highest: [n, ...]; NaN is below everything."""
    values = np.where(np.isnan(vectors), -np.inf, vectors)
    return values[:, coordinates].argmax(axis=-1)


def dwta_values(vectors, coordinates):
    """The same among non-zeros; -1 where there are none."""
    values = np.where(np.isnan(vectors) | (vectors == 0), -np.inf, vectors)[:, coordinates]
    return np.where(np.isneginf(values.max(axis=-1)), -1, values.argmax(axis=-1))
