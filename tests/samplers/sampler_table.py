"""A table of all samplers and their forms: `make(num_classes, **arguments)`."""

import functools

import numpy as np

from tests.papers.lsh.lsh_forms import FORMS, lsh_sampler
from tests.reference import samplers as reference
from tf_largeout import samplers


def counts_of(num_classes):
    """Returns increasing counts, some of them zero."""
    return np.where(np.arange(num_classes) % 7 == 3, 0, np.arange(num_classes) % 1000)


def unigram(num_classes, **kwargs):
    return samplers.UnigramSampler(counts=counts_of(num_classes), **kwargs)


def bernoulli(num_classes, **kwargs):
    return samplers.BernoulliSampler(counts=counts_of(num_classes), **kwargs)


def bigram(num_classes, **kwargs):
    sampler = samplers.BigramSampler(**kwargs)
    sampler.adapt(np.arange(200).reshape(10, 20) ** 2 % num_classes)
    return sampler


def _of(sampler_class, **fixed):
    """Returns `make` of a sampler that does not depend on `num_classes`."""
    return lambda num_classes, **kwargs: sampler_class(**{**fixed, **kwargs})


# name: (constructor, its distribution)
STATIC = {
    "uniform": (_of(samplers.UniformSampler), reference.uniform),
    "log_uniform": (_of(samplers.LogUniformSampler), reference.log_uniform),
    "unigram": (unigram, lambda n: reference.unigram(counts_of(n))),
    "unigram^0.75": (
        lambda n, **kwargs: unigram(n, distortion=0.75, **kwargs),
        lambda n: reference.unigram(counts_of(n), 0.75),
    ),
}
SEARCHES = {
    "top_k": _of(samplers.TopKSampler),
    "top_k and tail": _of(samplers.TopKSampler, num_hard=6, start_step=2),
    "inverted_file": _of(samplers.InvertedFileSampler, num_hard=6, start_step=2),
    "inverted_file of few lists": _of(
        samplers.InvertedFileSampler, num_hard=6, num_lists=7, num_probes=3, tail="log_uniform"
    ),
    "inverted_file alone": _of(samplers.InvertedFileSampler, num_hard=None),
    "inverted_file draws": _of(
        samplers.InvertedFileSampler, num_hard=6, start_step=2, select="draw"
    ),
    "inverted_file draws alone": _of(
        samplers.InvertedFileSampler, num_hard=None, select="draw"
    ),
    "kernel_tree": _of(samplers.KernelTreeSampler),
    "kernel_tree, own": _of(samplers.KernelTreeSampler, shared=False, alpha=2.0),
    "kernel_tree, projected": _of(
        samplers.KernelTreeSampler, shared=False, projection_dim=3, leaf_size=5
    ),
    "kernel_tree and tail": _of(samplers.KernelTreeSampler, num_hard=6),
    "lsh": _of(lsh_sampler, rebuild_every=2),
    "lsh of few tables": _of(
        samplers.LSHSampler,
        tables=samplers.HashTableConfig(num_hashes=2, num_tables=7, rebuild_growth=1.25),
    ),
    **{
        f"lsh {name}": _of(lsh_sampler, **form, rebuild_every=2) for name, form in FORMS.items()
    },
}
BY_LOGITS = {
    "softmax": _of(samplers.SoftmaxSampler),
    **{
        name: _of(samplers.SoftmaxSampler, distribution=name)
        for name in ("absolute_softmax", "quadratic", "quartic")
    },
}
OWN = {  # with draws for each example
    **{
        f"{name}, own": functools.partial(make, shared=False)
        for name, (make, _) in STATIC.items()
    },
    "bernoulli, own": functools.partial(bernoulli, shared=False),
}
SAMPLERS = {
    **{name: make for name, (make, _) in STATIC.items()},
    **{
        f"{name} with replacement": functools.partial(make, unique=False)
        for name, (make, _) in STATIC.items()
    },
    **SEARCHES,
    **BY_LOGITS,
    "bernoulli": bernoulli,
    "bigram": bigram,
    **OWN,
}
# One of each class and kind of state, for tests that do not test the draws themselves.
SHORT = [
    "log_uniform",
    "unigram",
    "unigram^0.75 with replacement",
    "top_k and tail",
    "inverted_file",
    "inverted_file draws",
    "kernel_tree",
    "kernel_tree, projected",
    "lsh",
    "lsh head",
    "softmax",
    "bernoulli",
    "bigram",
    "unigram, own",
    "bernoulli, own",
]
OF_ANY_NUMBER = ("bernoulli", "bernoulli, own")  # `num_sampled` is the mean
WITHOUT_A_DRAW = ("top_k", "inverted_file alone")  # no seed plays a part
