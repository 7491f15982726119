"""Samplers: they draw the classes that a sampled loss compares with the labels."""

from tf_largeout.sampled_values import HeadAndTail, SampledValues
from tf_largeout.samplers.bernoulli_sampler import BernoulliSampler
from tf_largeout.samplers.bigram_sampler import BigramSampler
from tf_largeout.samplers.hard_negative_sampler import HardNegativeSampler
from tf_largeout.samplers.hash_table_config import HashTableConfig
from tf_largeout.samplers.inverted_file_sampler import InvertedFileSampler
from tf_largeout.samplers.kernel_tree_sampler import KernelTreeSampler
from tf_largeout.samplers.log_uniform_sampler import LogUniformSampler
from tf_largeout.samplers.lsh_sampler import LSHSampler
from tf_largeout.samplers.registry import get
from tf_largeout.samplers.sampler import Sampler
from tf_largeout.samplers.softmax_sampler import SoftmaxSampler
from tf_largeout.samplers.static_sampler import StaticSampler
from tf_largeout.samplers.top_k_sampler import TopKSampler
from tf_largeout.samplers.uniform_sampler import UniformSampler
from tf_largeout.samplers.unigram_sampler import UnigramSampler

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
