"""A two-level softmax by its formula, one class at a time, in float64."""

import numpy as np


def log_probabilities(
    features, embeddings, bias, cluster_embeddings, cluster_bias, cluster_of_class
):
    """Returns `log P(c | h)` `[B, N]`."""
    embeddings, cluster_embeddings = (
        np.asarray(rows, np.float64) for rows in (embeddings, cluster_embeddings)
    )
    result = np.empty([len(features), len(embeddings)])
    for h, row in zip(np.asarray(features, np.float64), result, strict=True):
        cluster_p = np.exp(cluster_embeddings @ h + cluster_bias)
        cluster_p /= cluster_p.sum()
        for c, k in enumerate(cluster_of_class):
            members = np.flatnonzero(np.asarray(cluster_of_class) == k)
            partition = sum(np.exp(embeddings[j] @ h + bias[j]) for j in members)
            in_cluster = np.exp(embeddings[c] @ h + bias[c]) / partition
            row[c] = np.log(cluster_p[k] * in_cluster)
    return result


def loss(log_p, labels):
    """The mean of `-log P` over each example's labels, padded with -1; 0 without labels."""
    rows = [[-row[y] for y in ys if y >= 0] for row, ys in zip(log_p, labels, strict=True)]
    return np.array([np.mean(terms) if terms else 0.0 for terms in rows])
