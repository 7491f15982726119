"""Slow NumPy oracles of the passes over all classes, in float64."""

import numpy as np


def logits(features, embeddings, bias=None):
    result = np.float64(features) @ np.float64(embeddings).T
    return result if bias is None else result + np.float64(bias)


def log_partition(all_logits):
    top = all_logits.max(-1, keepdims=True)
    return (top + np.log(np.exp(all_logits - top).sum(-1, keepdims=True)))[:, 0]


def ranks(all_logits, labels):
    """Returns the rank of each label. Classes are sorted by descending logit, then by id."""
    result = np.full(np.shape(labels), all_logits.shape[1], np.int64)
    for b, row in enumerate(labels):
        order = np.lexsort((np.arange(all_logits.shape[1]), -all_logits[b]))
        position = np.argsort(order)
        for i, label in enumerate(row):
            if label >= 0:
                result[b, i] = position[label]
    return result


def true_logits(all_logits, labels):
    picked = np.take_along_axis(all_logits, np.maximum(labels, 0), 1)
    return np.where(labels >= 0, picked, 0)


def top_k(all_logits, k):
    n = all_logits.shape[1]
    order = np.stack([np.lexsort((np.arange(n), -row)) for row in all_logits])[:, :k]
    return np.take_along_axis(all_logits, order, 1), order


def gradient_of_logits(features, embeddings, bias, weights, labels, label_weights):
    """Gradient of `sum_b weights_b log Z_b + sum_bl label_weights_bl o_{y_bl}` for the o."""
    all_logits = logits(features, embeddings, bias)
    p = np.exp(all_logits - log_partition(all_logits)[:, None]) * np.float64(weights)[:, None]
    for b, row in enumerate(labels):
        for i, label in enumerate(row):
            if label >= 0:
                p[b, label] += label_weights[b, i]
    return p


def gradient(features, embeddings, bias, weights, labels, label_weights):
    """The same gradient for the features, the embeddings and the bias."""
    p = gradient_of_logits(features, embeddings, bias, weights, labels, label_weights)
    return p @ np.float64(embeddings), p.T @ np.float64(features), p.sum(0)


def bfloat16(x):
    """Rounds to 8 significant bits, ties to even. Numbers below 2^-126 become 0."""
    x = np.asarray(x, np.float64)
    mantissa, exponent = np.frexp(x)
    rounded = np.ldexp(np.round(mantissa * 256), exponent - 8)  # Halves go to even.
    return np.where(np.abs(x) < 2.0**-126, 0.0, rounded)


def bfloat16_gradient(features, embeddings, bias, weights, labels, label_weights):
    """Like `gradient`, with both factors of each product rounded to bfloat16."""
    features, embeddings = bfloat16(features), bfloat16(embeddings)
    p = gradient_of_logits(features, embeddings, bias, weights, labels, label_weights)
    return bfloat16(p) @ embeddings, bfloat16(p).T @ features, p.sum(0)
