"""The samplers of the integration tests: one entry per class, and three other forms."""

import functools

from tests.samplers import sampler_table

NUM_CLASSES = 301
_OTHER_FORMS = ("top_k and tail", "lsh head", "unigram, own")


def _make(name):
    return sampler_table.SAMPLERS[name](NUM_CLASSES, num_sampled=20, seed=3)


_FIRST_OF_CLASS = {type(_make(name)): name for name in reversed(sampler_table.SAMPLERS)}
SAMPLERS = {
    name: functools.partial(_make, name)
    for name in (*reversed(_FIRST_OF_CLASS.values()), *_OTHER_FORMS)
    if name != "bigram"  # which accepts only sequences
}
