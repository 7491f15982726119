"""Keras metrics for the output of our output layers, exact in `evaluate`."""

from tf_largeout.metrics.perplexity import Perplexity
from tf_largeout.metrics.precision_at_k import PrecisionAtK
from tf_largeout.metrics.propensity_scored_precision_at_k import PropensityScoredPrecisionAtK
from tf_largeout.metrics.recall_at_k import RecallAtK

__all__ = ["Perplexity", "PrecisionAtK", "PropensityScoredPrecisionAtK", "RecallAtK"]
