"""Keras losses for output layers with very many classes."""

from tf_largeout.candidates import Candidates
from tf_largeout.losses.cross_entropy import softmax_cross_entropy
from tf_largeout.losses.hierarchical_softmax_loss import HierarchicalSoftmaxLoss
from tf_largeout.losses.nce_loss import NCELoss, nce_loss
from tf_largeout.losses.negative_sampling_loss import (
    NegativeSamplingLoss,
    negative_sampling_loss,
)
from tf_largeout.losses.sampled_loss import SampledLoss
from tf_largeout.losses.sampled_softmax_loss import SampledSoftmaxLoss, sampled_softmax_loss
from tf_largeout.losses.softmax_loss import SoftmaxLoss
from tf_largeout.losses.tagged_loss import TaggedLoss

__all__ = [
    "Candidates",
    "HierarchicalSoftmaxLoss",
    "NCELoss",
    "NegativeSamplingLoss",
    "SampledLoss",
    "SampledSoftmaxLoss",
    "SoftmaxLoss",
    "TaggedLoss",
    "nce_loss",
    "negative_sampling_loss",
    "sampled_softmax_loss",
    "softmax_cross_entropy",
]
