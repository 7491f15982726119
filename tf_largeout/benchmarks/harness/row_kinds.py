"""Synthetic rows and queries, for `tf_largeout.benchmarks retrieval --rows`."""

import numpy as np


def clusters(draws, num_classes, dim):
    """Clusters of power-law sizes, by inner product: few common topics and many rare ones."""
    centres = draws.standard_normal((num_classes // 50, dim))
    shares = 1 / np.arange(1, len(centres) + 1)
    members = draws.choice(len(centres), num_classes, p=shares / shares.sum())
    rows = centres[members] + 0.3 * draws.standard_normal((num_classes, dim))
    return rows, None, _near(draws, rows)


def uniform(draws, num_classes, dim):
    """Uniform rows, by Euclidean distance: `-|q - x|^2` ranks as `<q, x> - |x|^2 / 2`."""
    rows = draws.random((num_classes, dim))
    return rows, -0.5 * (rows**2).sum(axis=1), draws.random((4096, dim))


def duplicates(draws, num_classes, dim):
    """Each row occurs five times, like classes with the same name."""
    rows = np.repeat(draws.standard_normal((-(-num_classes // 5), dim)), 5, axis=0)
    rows = draws.permutation(rows[:num_classes])
    return rows, None, _near(draws, rows)


ROW_KINDS = {"clusters": clusters, "uniform": uniform, "duplicates": duplicates}


def write(kind, num_classes, dim, path):
    """Writes rows, biases and queries in the format of `retrieval --weights`."""
    rows, bias, queries = ROW_KINDS[kind](np.random.default_rng(0), num_classes, dim)
    bias = np.zeros(num_classes) if bias is None else bias
    arrays = {"W": rows, "b": bias, "H": queries}
    np.savez(path, **{name: one.astype(np.float32) for name, one in arrays.items()})


def _near(draws, rows):
    """Queries near some of the rows."""
    queries = rows[draws.integers(0, len(rows), 4096)]
    return queries + 0.3 * draws.standard_normal(queries.shape)
