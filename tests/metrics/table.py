"""All public metrics with their oracles, and a problem for their tests."""

import functools
import re

import numpy as np
import tensorflow as tf

import tf_largeout as tflo
from tests.reference import metrics as reference

NUM_CLASSES = 41
COUNTS = np.arange(NUM_CLASSES) ** 2


def psp(k, **kwargs):
    return tflo.metrics.PropensityScoredPrecisionAtK(
        k, COUNTS, num_examples=500, a=0.6, b=2.6, **kwargs
    )


def psp_reference(k):
    def value(logits, labels, weights=None):
        return reference.propensity_scored_precision_at_k(
            logits, labels, k, COUNTS, 500, 0.6, 2.6, weights
        )

    return value


def of_absolute(oracle):
    def value(logits, labels, weights=None):
        scores = np.where(logits == -np.inf, logits, np.abs(logits))  # -inf: excluded
        return oracle(scores, labels, weights)

    return value


def popularity_reference(k):
    def value(logits, labels, weights=None):
        return reference.average_popularity_at_k(logits, labels, k, COUNTS, weights)

    return value


def at_k(name, k, *arguments, absolute=False):
    """The constructor of a metric, and its oracle, which has the same name in snake case."""
    words = re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()

    def value(logits, labels, weights=None):
        return getattr(reference, words)(logits, labels, k, weights)

    cls = getattr(tflo.metrics, name)
    make = functools.partial(cls, k, *arguments, absolute=absolute or None)
    return make, of_absolute(value) if absolute else value


# Every public metric: its constructor and its oracle.
METRICS = {
    "PrecisionAtK-1": at_k("PrecisionAtK", 1),
    "PrecisionAtK-5": at_k("PrecisionAtK", 5),
    "RecallAtK-5": at_k("RecallAtK", 5),
    "PropensityScoredPrecisionAtK-1": (lambda: psp(1), psp_reference(1)),
    "PropensityScoredPrecisionAtK-3": (lambda: psp(3), psp_reference(3)),
    "Perplexity": (tflo.metrics.Perplexity, reference.perplexity),
    "HitRateAtK-5": at_k("HitRateAtK", 5),
    "NDCG": at_k("NDCG", None),
    "NDCG-3": at_k("NDCG", 3),
    "NDCG-10-absolute": at_k("NDCG", 10, absolute=True),
    "MeanReciprocalRank": at_k("MeanReciprocalRank", None),
    "MeanReciprocalRank-5": at_k("MeanReciprocalRank", 5),
    "MeanAveragePrecision": at_k("MeanAveragePrecision", None),
    "MeanAveragePrecision-3": at_k("MeanAveragePrecision", 3),
    "MacroRecallAtK-5": at_k("MacroRecallAtK", 5, NUM_CLASSES),
    "CatalogCoverageAtK-1": at_k("CatalogCoverageAtK", 1, NUM_CLASSES),
    "CatalogCoverageAtK-2-absolute": at_k("CatalogCoverageAtK", 2, NUM_CLASSES, absolute=True),
    "AveragePopularityAtK-4": (
        lambda: tflo.metrics.AveragePopularityAtK(4, COUNTS),
        popularity_reference(4),
    ),
    "PrecisionAtK-5-absolute": at_k("PrecisionAtK", 5, absolute=True),
    "RecallAtK-5-absolute": at_k("RecallAtK", 5, absolute=True),
    "PropensityScoredPrecisionAtK-3-absolute": (
        lambda: psp(3, absolute=True),
        of_absolute(psp_reference(3)),
    ),
    "Perplexity-absolute": (
        lambda: tflo.metrics.Perplexity(absolute=True),
        of_absolute(reference.perplexity),
    ),
}


# One base class implements ranks by absolute values.
SHORT = ["RecallAtK-5", "PropensityScoredPrecisionAtK-3", "Perplexity"]
SHORT += ["PrecisionAtK-5-absolute", "Perplexity-absolute", "HitRateAtK-5", "NDCG-3"]
SHORT += ["MeanReciprocalRank-5", "MeanAveragePrecision-3", "MacroRecallAtK-5"]
SHORT += ["CatalogCoverageAtK-1", "AveragePopularityAtK-4"]


class Problem:
    def __init__(self, shape=(23,), num_labels=4, seed=0):
        rng = np.random.default_rng(seed)
        self.layer = tflo.layers.LargeOutput(NUM_CLASSES)
        self.features = rng.normal(size=(*shape, 8)).astype(np.float32)
        self.layer.build(self.features.shape)
        self.layer.embeddings.assign(rng.normal(size=(NUM_CLASSES, 8)))
        self.labels = rng.integers(-1, NUM_CLASSES, (*shape, num_labels))
        self.labels[0] = -1
        self.labels[1] = self.labels[1, ..., :1]
        self.weights = rng.uniform(size=shape)

    def logits(self, training=False):
        return self.layer(tf.constant(self.features), training=training)

    def flat(self):
        """Returns logits, labels and weights as the oracles expect them."""
        logits = np.float64(self.logits()).reshape(-1, NUM_CLASSES)
        return logits, self.labels.reshape(len(logits), -1), self.weights.reshape(-1)
