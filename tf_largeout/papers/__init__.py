"""Methods of papers that the guides do not recommend, one folder per method.

They use only the documented base classes. Users find them by their public names, such as
`tf_largeout.samplers.LSHSampler`.
"""

from tf_largeout.papers.factored.factored_output import FactoredOutput as FactoredOutput
from tf_largeout.papers.factored.spherical_loss import SphericalLoss as SphericalLoss
from tf_largeout.papers.factored.spherical_softmax_loss import (
    SphericalSoftmaxLoss as SphericalSoftmaxLoss,
)
from tf_largeout.papers.factored.squared_error_loss import SquaredErrorLoss as SquaredErrorLoss
from tf_largeout.papers.factored.taylor_softmax_loss import (
    TaylorSoftmaxLoss as TaylorSoftmaxLoss,
)
from tf_largeout.papers.factored.z_loss import ZLoss as ZLoss
from tf_largeout.papers.hierarchical.hierarchical_output import (
    HierarchicalOutput as HierarchicalOutput,
)
from tf_largeout.papers.hierarchical.hierarchical_softmax_loss import (
    HierarchicalSoftmaxLoss as HierarchicalSoftmaxLoss,
)
from tf_largeout.papers.hierarchical.huffman_output import HuffmanOutput as HuffmanOutput
from tf_largeout.papers.kernel_tree.absolute_softmax_loss import (
    AbsoluteSoftmaxLoss as AbsoluteSoftmaxLoss,
)
from tf_largeout.papers.kernel_tree.absolute_softmax_loss import (
    absolute_softmax_loss as absolute_softmax_loss,
)
from tf_largeout.papers.kernel_tree.kernel_tree_sampler import (
    KernelTreeSampler as KernelTreeSampler,
)
from tf_largeout.papers.kernel_tree.softmax_sampler import SoftmaxSampler as SoftmaxSampler
from tf_largeout.papers.likelihood.bernoulli_normalization_loss import (
    BernoulliNormalizationLoss as BernoulliNormalizationLoss,
)
from tf_largeout.papers.likelihood.bernoulli_sampler import BernoulliSampler as BernoulliSampler
from tf_largeout.papers.likelihood.black_out_loss import BlackOutLoss as BlackOutLoss
from tf_largeout.papers.likelihood.black_out_loss import black_out_loss as black_out_loss
from tf_largeout.papers.likelihood.importance_normalization_loss import (
    ImportanceNormalizationLoss as ImportanceNormalizationLoss,
)
from tf_largeout.papers.likelihood.normalization_loss import (
    NormalizationLoss as NormalizationLoss,
)
from tf_largeout.papers.likelihood.ranking_loss import RankingLoss as RankingLoss
from tf_largeout.papers.likelihood.ranking_loss import ranking_loss as ranking_loss
from tf_largeout.papers.lsh.hash_tables import HashTableConfig as HashTableConfig
from tf_largeout.papers.lsh.lsh_index import LSHIndex as LSHIndex
from tf_largeout.papers.lsh.lsh_sampler import LSHSampler as LSHSampler
from tf_largeout.papers.lsh.lsh_sampler import TopKSampler as TopKSampler
