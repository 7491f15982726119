"""Slow NumPy oracles of the metrics, from all logits in float64."""

import numpy as np


def _best(logits, k):
    return [set(np.lexsort((np.arange(len(row)), -row))[:k]) for row in logits]


def _label_sets(labels):
    return [{int(label) for label in np.atleast_1d(row) if label >= 0} for row in labels]


def _mean(values, weights):
    return sum(v * w for v, w in zip(values, weights)) / max(sum(weights), 1e-300)  # noqa: B905


def _weights(sets, weights):
    given = np.ones(len(sets)) if weights is None else weights
    return [w if labels else 0.0 for labels, w in zip(sets, given)]  # noqa: B905


def precision_at_k(logits, labels, k, weights=None):
    sets, best = _label_sets(labels), _best(logits, k)
    hits = [len(sets[b] & best[b]) / k for b in range(len(sets))]
    return _mean(hits, _weights(sets, weights))


def recall_at_k(logits, labels, k, weights=None):
    sets, best = _label_sets(labels), _best(logits, k)
    hits = [len(sets[b] & best[b]) / max(len(sets[b]), 1) for b in range(len(sets))]
    return _mean(hits, _weights(sets, weights))


def propensity_scored_precision_at_k(
    logits, labels, k, counts, num_examples, a, b, weights=None
):
    c = (np.log(num_examples) - 1) * (b + 1) ** a
    propensity = 1 / (1 + c * np.exp(-a * np.log(np.asarray(counts) + b)))
    sets, best = _label_sets(labels), _best(logits, k)
    found = possible = 0.0
    for row, weight in enumerate(_weights(sets, weights)):
        found += weight * sum(1 / propensity[label] for label in sets[row] & best[row])
        gains = sorted((1 / propensity[label] for label in sets[row]), reverse=True)
        possible += weight * sum(gains[:k])
    return found / possible


def perplexity(logits, labels, weights=None):
    sets = _label_sets(labels)
    losses = []
    for row, labels_of_row in zip(logits, sets):  # noqa: B905
        top = row.max()
        log_partition = top + np.log(np.exp(row - top).sum())
        mean = np.mean([row[label] for label in labels_of_row]) if labels_of_row else 0.0
        losses.append(log_partition - mean)
    return np.exp(_mean(losses, _weights(sets, weights)))
