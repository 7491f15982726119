"""Keras losses for output layers with very many classes."""

from typing import TYPE_CHECKING, Any

from tf_largeout.lazy_names import papers_name
from tf_largeout.losses.base import SampledLoss, TaggedLoss, softmax_cross_entropy
from tf_largeout.losses.binary_losses import (
    NCELoss,
    NegativeSamplingLoss,
    SigmoidLoss,
    nce,
    nce_loss,
    negative_sampling,
    negative_sampling_loss,
    sigmoid,
)
from tf_largeout.losses.softmax_losses import (
    DecoupledSoftmaxLoss,
    MarginSoftmaxLoss,
    SampledSoftmaxLoss,
    SoftmaxLoss,
    decoupled_softmax,
    decoupled_softmax_loss,
    margin_softmax,
    sampled_softmax,
    sampled_softmax_loss,
    softmax,
)
from tf_largeout.steps.step import Candidates

if TYPE_CHECKING:
    from tf_largeout.papers.factored.losses import (
        SphericalLoss,
        SphericalSoftmaxLoss,
        SquaredErrorLoss,
        TaylorSoftmaxLoss,
        ZLoss,
    )
    from tf_largeout.papers.hierarchical.hierarchical_softmax_loss import (
        HierarchicalSoftmaxLoss,
    )
    from tf_largeout.papers.kernel_tree.absolute_softmax_loss import (
        AbsoluteSoftmaxLoss,
        absolute_softmax_loss,
    )
    from tf_largeout.papers.likelihood.losses import (
        BernoulliNormalizationLoss,
        BlackOutLoss,
        ImportanceNormalizationLoss,
        NormalizationLoss,
        RankingLoss,
        black_out_loss,
        ranking_loss,
    )

__all__ = [
    "decoupled_softmax",
    "margin_softmax",
    "nce",
    "negative_sampling",
    "sampled_softmax",
    "sigmoid",
    "softmax",
    "AbsoluteSoftmaxLoss",
    "BernoulliNormalizationLoss",
    "BlackOutLoss",
    "Candidates",
    "DecoupledSoftmaxLoss",
    "HierarchicalSoftmaxLoss",
    "ImportanceNormalizationLoss",
    "MarginSoftmaxLoss",
    "NCELoss",
    "NegativeSamplingLoss",
    "NormalizationLoss",
    "RankingLoss",
    "SampledLoss",
    "SampledSoftmaxLoss",
    "SigmoidLoss",
    "SoftmaxLoss",
    "SphericalLoss",
    "SphericalSoftmaxLoss",
    "SquaredErrorLoss",
    "TaggedLoss",
    "TaylorSoftmaxLoss",
    "ZLoss",
    "absolute_softmax_loss",
    "black_out_loss",
    "decoupled_softmax_loss",
    "nce_loss",
    "negative_sampling_loss",
    "ranking_loss",
    "sampled_softmax_loss",
    "softmax_cross_entropy",
]


def __getattr__(name: str) -> Any:
    return papers_name(__name__, name)
