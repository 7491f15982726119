"""The samplers of the benchmarks by name. To add one, add a line to `SAMPLERS`."""

from tf_largeout.samplers import (
    BernoulliSampler,
    BigramSampler,
    InvertedFileSampler,
    KernelTreeSampler,
    LogUniformSampler,
    LSHSampler,
    SoftmaxSampler,
    TopKSampler,
    UniformSampler,
    UnigramSampler,
)


def _of(sampler_class, **fixed):
    """A sampler that needs nothing from the task."""
    return lambda task, num_sampled, **options: sampler_class(num_sampled, **fixed, **options)


def _frequency(task, num_sampled, **options):
    return UnigramSampler(num_sampled, counts=task.label_counts, **options)


def _bernoulli(task, num_sampled, **options):
    return BernoulliSampler(num_sampled, counts=task.label_counts, **options)


def _bigram(data, num_sampled, **options):
    sampler = BigramSampler(num_sampled, **options)
    sampler.adapt(data.train)
    return sampler


def _draws(sampler_class, **fixed):
    """A sampler without a tail; ignores the tail of the settings."""
    return lambda task, num_sampled, tail=None, **options: sampler_class(
        num_sampled, **fixed, **options
    )


# Each is called as (task, num_sampled, **options). Those that search have the options
# `num_hard` and `tail`, and options of their own.
SAMPLERS = {
    "uniform": _of(UniformSampler),
    "log_uniform": _of(LogUniformSampler),
    "frequency": _frequency,
    "lsh_embedding": _of(LSHSampler, shared=False),
    "lsh_label": _of(LSHSampler, query="label", shared=False),
    "lsh_pool": _of(LSHSampler, shared=True),
    "wta": _of(LSHSampler, hash="wta", select="frequent"),
    "top_k": _of(TopKSampler),
    "inverted_file": _of(InvertedFileSampler),
    "inverted_file_draws": _draws(InvertedFileSampler, num_hard=None, select="draw"),
    "bernoulli": _bernoulli,
    "bigram": _bigram,  # for text tasks only
    "kernel_tree": _draws(KernelTreeSampler, shared=False),
    "kernel_tree_32": _draws(KernelTreeSampler, shared=False, projection_dim=32),
    "kernel_tree_pool": _draws(KernelTreeSampler, shared=True),
    "kernel_tree_pool_32": _draws(KernelTreeSampler, shared=True, projection_dim=32),
    "kernel_tree_head": _of(KernelTreeSampler),
    "softmax": _draws(SoftmaxSampler),
    "quartic": _draws(SoftmaxSampler, distribution="quartic"),
}
