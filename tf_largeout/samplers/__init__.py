"""Samplers: they draw the classes that a sampled loss compares with the labels."""

from typing import TYPE_CHECKING, Any

from tf_largeout.lazy_names import papers_name
from tf_largeout.sampled_values import HeadAndTail, SampledValues
from tf_largeout.samplers.counted_samplers import BigramSampler, UnigramSampler
from tf_largeout.samplers.hard_negative_sampler import HardNegativeSampler
from tf_largeout.samplers.inverted_file_sampler import InvertedFileSampler
from tf_largeout.samplers.names import get
from tf_largeout.samplers.sampler import Sampler
from tf_largeout.samplers.static_samplers import (
    LogUniformSampler,
    StaticSampler,
    UniformSampler,
)

if TYPE_CHECKING:
    from tf_largeout.papers.kernel_tree.kernel_tree_sampler import KernelTreeSampler
    from tf_largeout.papers.kernel_tree.softmax_sampler import SoftmaxSampler
    from tf_largeout.papers.likelihood.bernoulli_sampler import BernoulliSampler
    from tf_largeout.papers.lsh.hash_tables import HashTableConfig
    from tf_largeout.papers.lsh.lsh_sampler import LSHSampler, TopKSampler

__all__ = [
    "BernoulliSampler",
    "BigramSampler",
    "HardNegativeSampler",
    "HashTableConfig",
    "HeadAndTail",
    "InvertedFileSampler",
    "KernelTreeSampler",
    "LSHSampler",
    "LogUniformSampler",
    "SampledValues",
    "Sampler",
    "SoftmaxSampler",
    "StaticSampler",
    "TopKSampler",
    "UniformSampler",
    "UnigramSampler",
    "get",
]


def __getattr__(name: str) -> Any:
    return papers_name(__name__, name)
