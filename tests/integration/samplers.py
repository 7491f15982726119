"""The samplers of the integration tests: every public one, small, searching early."""

import numpy as np

import tf_largeout as tflo

NUM_CLASSES = 301

SAMPLERS = {
    "uniform": lambda: tflo.samplers.UniformSampler(20, seed=3),
    "log-uniform": lambda: tflo.samplers.LogUniformSampler(20, seed=3),
    "unigram": lambda: tflo.samplers.UnigramSampler(
        20, counts=np.arange(1, NUM_CLASSES + 1), seed=3
    ),
    "top k": lambda: tflo.samplers.TopKSampler(20, num_hard=6, seed=3),
    "lsh pool": lambda: tflo.samplers.LSHSampler(20, rebuild_every=3, seed=3),
    "lsh": lambda: tflo.samplers.LSHSampler(20, num_hard=5, rebuild_every=3, seed=3),
    "inverted file": lambda: tflo.samplers.InvertedFileSampler(
        20, num_hard=5, start_step=2, seed=3
    ),
}
