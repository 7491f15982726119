"""Slow NumPy oracles of the operations on sampled candidates."""

import numpy as np


def accidental_hits(labels, candidates):
    """Returns bool `[batch, num_candidates]`: whether a candidate is a label of its example."""
    batch = len(labels)
    candidates = np.broadcast_to(candidates, (batch, np.shape(candidates)[-1]))
    hits = np.zeros(candidates.shape, bool)
    for b in range(batch):
        hits[b] = [c >= 0 and c in labels[b] for c in candidates[b]]
    return hits


def ranks(logits, true_logits, labels):
    """Returns the ranks of labels among the candidates and labels of their example."""
    result = np.zeros(np.shape(labels), np.int64)
    for b, row in enumerate(labels):
        for i, label in enumerate(row):
            if label < 0 or np.isnan(true_logits[b][i]):
                result[b, i] = len(logits[b]) + len(row)
                continue
            others = [
                (-true_logits[b][j], j)
                for j in range(len(row))
                if row[j] >= 0 and row[j] != label
            ]
            result[b, i] = sum(c > true_logits[b][i] for c in logits[b])
            result[b, i] += sum(other < (-true_logits[b][i], i) for other in others)
    return result
