"""The samplers of the benchmarks by name; a new one is one line in `SAMPLERS`."""

import functools

from tf_largeout.samplers import (
    InvertedFileSampler,
    LogUniformSampler,
    LSHSampler,
    TopKSampler,
    UniformSampler,
)

# Called with `num_sampled` and, those that search, with their options: `num_hard`, `tail` ...
SAMPLERS = {
    "uniform": UniformSampler,
    "log_uniform": LogUniformSampler,
    "lsh_embedding": LSHSampler,
    "lsh_label": functools.partial(LSHSampler, query="label"),
    "lsh_pool": functools.partial(LSHSampler, shared=True),
    "wta": functools.partial(LSHSampler, hash="wta", select="frequent"),
    "top_k": TopKSampler,
    "inverted_file": InvertedFileSampler,
}
