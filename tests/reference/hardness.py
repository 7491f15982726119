"""A slow oracle of the hardness of the negatives of one example."""

import math
import statistics


def hardness_of_example(ids, logits, labels):
    """Returns the mean logit, share of the non-label softmax mass, and median rank of ids."""
    others = [c for c in range(len(logits)) if c not in set(labels)]
    negatives = [c for c in others if c in set(ids)]
    mass = sum(math.exp(logits[c]) for c in others)
    ranks = [sum(logits[d] > logits[c] for d in others) for c in negatives]
    return (
        statistics.mean(float(logits[c]) for c in negatives),
        sum(math.exp(logits[c]) for c in negatives) / mass,
        statistics.median(ranks),
    )
