"""Keras metrics for the output of our output layers, exact in `evaluate`."""

from tf_largeout.metrics.class_metrics import (
    AveragePopularityAtK,
    CatalogCoverageAtK,
    MacroRecallAtK,
    PropensityScoredPrecisionAtK,
)
from tf_largeout.metrics.rank_metrics import (
    NDCG,
    HitRateAtK,
    MeanAveragePrecision,
    MeanReciprocalRank,
    Perplexity,
    PrecisionAtK,
    RecallAtK,
)
from tf_largeout.steps.labels import with_exclude

__all__ = [
    "NDCG",
    "AveragePopularityAtK",
    "CatalogCoverageAtK",
    "HitRateAtK",
    "MacroRecallAtK",
    "MeanAveragePrecision",
    "MeanReciprocalRank",
    "Perplexity",
    "PrecisionAtK",
    "PropensityScoredPrecisionAtK",
    "RecallAtK",
    "with_exclude",
]
