"""Slow NumPy oracles of the metrics, from all logits in float64."""

import numpy as np


def _best(logits, k):
    return [set(order[:k]) for order in _orders(logits)]


def _orders(logits):
    """Returns the classes of each row, best first; without those whose logit is -inf."""
    orders = [np.lexsort((np.arange(len(row)), -row)) for row in logits]
    return [[int(c) for c in order if row[c] > -np.inf] for order, row in zip(orders, logits)]  # noqa: B905


def without(logits, exclude):
    """Returns the logits, -inf for the classes of `exclude`, `[B, n]`, padded with -1."""
    left = np.array(logits)
    for row, ids in zip(left, exclude):  # noqa: B905
        row[[c for c in ids if c >= 0]] = -np.inf
    return left


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


def _positions(logits, labels, k):
    """For each row, the positions from 1 to k that have a label, and the number of labels."""
    sets = _label_sets(labels)
    for order, labels_of_row in zip(_orders(logits), sets):  # noqa: B905
        best = order[:k]
        yield [i + 1 for i, c in enumerate(best) if c in labels_of_row], len(labels_of_row)


def _mean_of(values, labels, weights):
    return _mean(values, _weights(_label_sets(labels), weights))


def hit_rate_at_k(logits, labels, k, weights=None):
    hits = [float(len(found) > 0) for found, _ in _positions(logits, labels, k)]
    return _mean_of(hits, labels, weights)


def ndcg(logits, labels, k=None, weights=None):
    k = logits.shape[1] if k is None else k
    values = []
    for found, count in _positions(logits, labels, k):
        ideal = sum(1 / np.log2(i + 1) for i in range(1, min(k, count) + 1))
        values.append(sum(1 / np.log2(i + 1) for i in found) / ideal if count else 0.0)
    return _mean_of(values, labels, weights)


def mean_reciprocal_rank(logits, labels, k=None, weights=None):
    values = [1 / min(found) if found else 0.0 for found, _ in _positions(logits, labels, k)]
    return _mean_of(values, labels, weights)


def mean_average_precision(logits, labels, k=None, weights=None):
    values = []
    for found, count in _positions(logits, labels, k):
        precisions = [sum(j <= i for j in found) / i for i in found]
        values.append(sum(precisions) / max(count, 1))
    return _mean_of(values, labels, weights)


def class_recalls(logits, labels, k, weights=None):
    found, occurring = np.zeros((2, logits.shape[1]))
    sets, best = _label_sets(labels), _best(logits, k)
    for row, weight in enumerate(_weights(sets, weights)):
        for label in sets[row]:
            found[label] += weight * (label in best[row])
            occurring[label] += weight
    return np.where(occurring != 0, found / np.where(occurring != 0, occurring, 1), np.nan)


def macro_recall_at_k(logits, labels, k, weights=None):
    return np.nanmean(class_recalls(logits, labels, k, weights))


def catalog_coverage_at_k(logits, labels, k, weights=None):
    used = _weights(_label_sets(labels), weights)
    covered = [best for best, weight in zip(_best(logits, k), used) if weight]  # noqa: B905
    return len(set().union(*covered)) / logits.shape[1]


def average_popularity_at_k(logits, labels, k, counts, weights=None):
    means = [np.mean([counts[c] for c in best]) for best in _best(logits, k)]
    return _mean_of(means, labels, weights)
