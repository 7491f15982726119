"""Locality-sensitive hashes from their definitions, in float64."""

import numpy as np


def simhash_agreement(x, y):
    """The probability that a random hyperplane does not separate x and y (Charikar 2002)."""
    cosine = x @ y / np.sqrt((x @ x) * (y @ y))
    return 1 - np.arccos(np.clip(cosine, -1, 1)) / np.pi


def wta_agreement(x, y, k):
    """The probability that the same one of k random coordinates is the highest in x and y.

    Coordinate c is the highest in both if the k - 1 others are below it in both. That holds for
    choose(R_c, k - 1) of the choose(dim, k) sets.
    """
    below = np.array([np.sum((x < x[c]) & (y < y[c])) for c in range(len(x))], np.float64)
    share = np.full(len(x), k / len(x))
    for i in range(k - 1):
        share *= np.maximum(below - i, 0) / (len(x) - 1 - i)
    return share.sum()


def wta_values(vectors, coordinates):
    """The index of the highest of `coordinates` [..., k], as [n, ...]. NaN ranks lowest."""
    values = np.where(np.isnan(vectors), -np.inf, vectors)
    return values[:, coordinates].argmax(axis=-1)


def joined(values, bin_size):
    """The bucket of K values in [0, bin_size): their bits one after the other, [..., K]."""
    codes = np.zeros(values.shape[:-1], np.int64)
    for value in np.moveaxis(values, -1, 0):
        codes = codes * bin_size + value
    return codes


def dwta_values(vectors, coordinates):
    """The same for non-zeros only; -1 if there are none."""
    values = np.where(np.isnan(vectors) | (vectors == 0), -np.inf, vectors)[:, coordinates]
    return np.where(np.isneginf(values.max(axis=-1)), -1, values.argmax(axis=-1))
