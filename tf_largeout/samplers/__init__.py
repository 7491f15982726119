"""Samplers: which classes a sampled loss compares with the labels."""

from tf_largeout.samplers.identifiers import get as get
from tf_largeout.samplers.log_uniform_sampler import LogUniformSampler as LogUniformSampler
from tf_largeout.samplers.sampled_values import SampledValues as SampledValues
from tf_largeout.samplers.sampler import Sampler as Sampler
from tf_largeout.samplers.uniform_sampler import UniformSampler as UniformSampler
from tf_largeout.samplers.unigram_sampler import UnigramSampler as UnigramSampler
