"""The samplers of the benchmarks by name. To add one, add a line to `SAMPLERS`."""

from tf_largeout.samplers import (
    InvertedFileSampler,
    LogUniformSampler,
    LSHSampler,
    TopKSampler,
    UniformSampler,
    UnigramSampler,
)


def sampler_of(sampler_class, **fixed):
    """Returns an entry of `SAMPLERS` for a sampler that does not use the task."""
    return lambda task, num_sampled, **options: sampler_class(num_sampled, **fixed, **options)


def search_of(sampler_class, **fixed):
    """Returns an entry like `sampler_of`, which passes `tail` only together with `num_hard`."""

    def make(task, num_sampled, tail="uniform", **options):
        if "num_hard" in options:
            options["tail"] = tail
        return sampler_class(num_sampled, **fixed, **options)

    return make


def _lsh(**fixed):
    """Returns an entry for an `LSHSampler`, which passes `form` only without `num_hard`."""

    def make(task, num_sampled, tail="uniform", **options):
        if "num_hard" in options:
            options |= {"tail": tail, "form": None}
        return LSHSampler(num_sampled, **{**fixed, **options})

    return make


def _frequency(task, num_sampled, **options):
    return UnigramSampler(num_sampled, counts=task.label_counts, **options)


# Each is called as (task, num_sampled, **options). Those that search have the options
# `num_hard` and `tail`, and options of their own.
SAMPLERS = {
    "uniform": sampler_of(UniformSampler),
    "log_uniform": sampler_of(LogUniformSampler),
    "frequency": _frequency,
    "lsh_embedding": _lsh(form="walk"),
    "lsh_label": _lsh(form="walk", query="label"),
    "lsh_pool": _lsh(form="pool"),
    "wta": _lsh(form="frequent", tables={"hash": "wta"}),
    "top_k": search_of(TopKSampler),
    "inverted_file": sampler_of(InvertedFileSampler),
}
