"""The package's samplers of benchmarks, and those that only notes compare."""

from benchmarks.methods.models import SAMPLERS as PACKAGE_SAMPLERS
from benchmarks.methods.models import sampler_of
from tf_largeout.samplers import (
    BernoulliSampler,
    BigramSampler,
    InvertedFileSampler,
    KernelTreeSampler,
    LSHSampler,
    SoftmaxSampler,
    UniformSampler,
    UnigramSampler,
)


def _bernoulli(task, num_sampled, **options):
    return BernoulliSampler(num_sampled, counts=task.label_counts, **options)


def _own_frequency(task, num_sampled, tail=None):
    return UnigramSampler(num_sampled, counts=task.label_counts, shared=False)


def _bigram(data, num_sampled, **options):
    sampler = BigramSampler(num_sampled, **options)
    sampler.adapt(data.train)
    return sampler


# Hashes of 16 coordinates and 3 per table, as in Vijayanarasimhan et al. 2015.
_WTA_16 = {"hash": "wta", "bin_size": 16, "num_hashes": 3}


def _wta_16(task, num_sampled, tail=None, **options):
    return LSHSampler(num_sampled, form="frequent", tables={**_WTA_16, **options})


def _draws(sampler_class, **fixed):
    """Returns a sampler without a tail; ignores the tail of the settings."""
    return lambda task, num_sampled, tail=None, **options: sampler_class(
        num_sampled, **fixed, **options
    )


SAMPLERS = {
    **PACKAGE_SAMPLERS,
    "uniform_own": _draws(UniformSampler, shared=False),
    "frequency_own": _own_frequency,
    "inverted_file_draws": _draws(InvertedFileSampler, num_hard=None, select="draw"),
    "lsh_both": _draws(LSHSampler, query="both", form="walk"),
    "wta_16": _wta_16,
    "wta_16_head": sampler_of(LSHSampler, form="frequent", tables=_WTA_16),
    "bernoulli": _bernoulli,
    "bigram": _bigram,  # for text tasks only
    "kernel_tree": _draws(KernelTreeSampler, shared=False),
    "kernel_tree_32": _draws(KernelTreeSampler, shared=False, projection_dim=32),
    "kernel_tree_pool": _draws(KernelTreeSampler, shared=True),
    "kernel_tree_pool_32": _draws(KernelTreeSampler, shared=True, projection_dim=32),
    "kernel_tree_head": sampler_of(KernelTreeSampler),
    "softmax": _draws(SoftmaxSampler),
    "absolute_softmax": _draws(SoftmaxSampler, distribution="absolute_softmax"),
    "quartic": _draws(SoftmaxSampler, distribution="quartic"),
}
