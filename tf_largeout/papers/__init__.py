"""Methods of papers that the guides do not recommend, one folder per method.

They use only the documented base classes. Users find them by their public names, such as
`tf_largeout.samplers.LSHSampler`, which `tf_largeout.lazy_names` takes from here.
"""
# ruff: noqa: F401

from tf_largeout.papers.factored.factored_output import FactoredOutput
from tf_largeout.papers.factored.losses import (
    SphericalLoss,
    SphericalSoftmaxLoss,
    SquaredErrorLoss,
    TaylorSoftmaxLoss,
    ZLoss,
)
from tf_largeout.papers.hierarchical.hierarchical_output import HierarchicalOutput
from tf_largeout.papers.hierarchical.hierarchical_softmax_loss import HierarchicalSoftmaxLoss
from tf_largeout.papers.hierarchical.huffman_output import HuffmanOutput
from tf_largeout.papers.kernel_tree.absolute_softmax_loss import (
    AbsoluteSoftmaxLoss,
    absolute_softmax_loss,
)
from tf_largeout.papers.kernel_tree.kernel_tree_sampler import KernelTreeSampler
from tf_largeout.papers.kernel_tree.softmax_sampler import SoftmaxSampler
from tf_largeout.papers.likelihood.bernoulli_sampler import BernoulliSampler
from tf_largeout.papers.likelihood.losses import (
    BernoulliNormalizationLoss,
    BlackOutLoss,
    ImportanceNormalizationLoss,
    NormalizationLoss,
    RankingLoss,
    black_out_loss,
    ranking_loss,
)
from tf_largeout.papers.lsh.hash_tables import HashTableConfig
from tf_largeout.papers.lsh.lsh_index import LSHIndex
from tf_largeout.papers.lsh.lsh_sampler import LSHSampler, TopKSampler
