"""Keras callbacks: exact metrics during `fit`, and the state of samplers."""

from tf_largeout.callbacks.exact_metrics import ExactMetrics
from tf_largeout.callbacks.sampler_health import SamplerHealth

__all__ = ["ExactMetrics", "SamplerHealth"]
