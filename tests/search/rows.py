"""Rows to search, without a layer, and a brute-force search."""

import keras
import numpy as np

NUM_ROWS, DIM, K = 1500, 12, 10
RANDOM = np.random.default_rng(5)
ROWS = RANDOM.normal(size=[NUM_ROWS, DIM]).astype("float32")
BIAS = RANDOM.normal(size=NUM_ROWS).astype("float32")
QUERIES = RANDOM.normal(size=[20, DIM]).astype("float32")


def add_weight(name, shape, dtype, initializer, on_host=False):
    """Returns a minimal `add_weight` for a search structure."""
    return keras.Variable(initializer, shape, dtype, trainable=False, name=name)


def kept_weights(weights):
    """Returns an `add_weight` that also appends the weights to a list."""

    def add(*arguments, **keywords):
        weights.append(add_weight(*arguments, **keywords))
        return weights[-1]

    return add


def brute_force(rows, bias=0.0, queries=QUERIES, k=K):
    """Returns the ids of the k rows with the highest scores, best first, and their scores."""
    scores = queries @ rows.T + bias
    ids = np.argsort(-scores, axis=1)[:, :k]
    return ids, np.take_along_axis(scores, ids, 1)


def recall(found, exact):
    """Returns the share of the rows `exact` that are in `found`, averaged over queries."""
    return np.mean([np.isin(e, f).mean() for f, e in zip(found, exact, strict=True)])
