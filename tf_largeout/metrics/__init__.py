"""Keras metrics for the output of our output layers, exact in `evaluate`."""

from tf_largeout.metrics.average_popularity_at_k import AveragePopularityAtK
from tf_largeout.metrics.catalog_coverage_at_k import CatalogCoverageAtK
from tf_largeout.metrics.hit_rate_at_k import HitRateAtK
from tf_largeout.metrics.macro_recall_at_k import MacroRecallAtK
from tf_largeout.metrics.mean_average_precision import MeanAveragePrecision
from tf_largeout.metrics.mean_reciprocal_rank import MeanReciprocalRank
from tf_largeout.metrics.ndcg import NDCG
from tf_largeout.metrics.perplexity import Perplexity
from tf_largeout.metrics.precision_at_k import PrecisionAtK
from tf_largeout.metrics.propensity_scored_precision_at_k import PropensityScoredPrecisionAtK
from tf_largeout.metrics.recall_at_k import RecallAtK
from tf_largeout.metrics.with_exclude import with_exclude

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
