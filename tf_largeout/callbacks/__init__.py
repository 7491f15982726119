"""Keras callbacks: exact metrics during `fit`, the state of samplers, and safe saves."""

from tf_largeout.callbacks.exact_metrics import ExactMetrics
from tf_largeout.callbacks.model_checkpoint import ModelCheckpoint
from tf_largeout.callbacks.sampler_health import SamplerHealth

__all__ = ["ExactMetrics", "ModelCheckpoint", "SamplerHealth"]
