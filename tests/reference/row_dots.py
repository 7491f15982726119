"""Logits of each example's classes, and gradients, one class at a time, in float64."""

import numpy as np


def logits(features, embeddings, bias, ids):
    result = np.full(np.shape(ids), np.finfo(np.float32).min, np.float64)
    for (b, i), c in np.ndenumerate(ids):
        if c >= 0:
            result[b, i] = np.dot(np.float64(features[b]), np.float64(embeddings[c])) + bias[c]
    return result


def gradients(features, embeddings, ids, weights):
    """Gradients of `sum weights * logits` for the features, the embeddings and the bias."""
    by_features = np.zeros(np.shape(features))
    by_embeddings, by_bias = np.zeros(np.shape(embeddings)), np.zeros(len(embeddings))
    for (b, i), c in np.ndenumerate(ids):
        if c >= 0:
            by_features[b] += float(weights[b, i]) * np.float64(embeddings[c])
            by_embeddings[c] += float(weights[b, i]) * np.float64(features[b])
            by_bias[c] += weights[b, i]
    return by_features, by_embeddings, by_bias
