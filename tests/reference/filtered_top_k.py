"""A slow NumPy oracle of the best classes after filtering."""

import numpy as np


def top_k(all_scores, k, exclude=None, allowed=None):
    """Returns the best classes per example, padded with -inf and -1."""
    batch, num_classes = all_scores.shape
    scores, ids = np.full((batch, k), -np.inf), np.full((batch, k), -1)
    for b in range(batch):
        remaining = [
            c
            for c in range(num_classes)
            if (exclude is None or c not in exclude[b]) and (allowed is None or c in allowed)
        ]
        best = sorted(remaining, key=lambda c: (-all_scores[b, c], c))[:k]
        ids[b, : len(best)] = best
        scores[b, : len(best)] = all_scores[b, best]
    return scores, ids
