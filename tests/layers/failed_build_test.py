"""A layer and a sampler can be built after a failed build."""

import numpy as np
import pytest

from tests.slow import slow_but
from tf_largeout import layers, samplers

N, DIM = 60, 6
FEATURES = np.ones([4, DIM], "float32")


def _draws(head):
    sample = head.sampler.sample(FEATURES, np.zeros([4, 1], "int64"), head)
    assert np.isfinite(sample[-1].numpy() if len(sample) == 3 else 0).all()


SAMPLERS = {
    "uniform": lambda: samplers.UniformSampler(30),
    "unigram": lambda: samplers.UnigramSampler(30, counts=np.arange(N)),
    "lsh": lambda: samplers.LSHSampler(30),
    "lsh with a tail": lambda: samplers.LSHSampler(30, num_hard=2),
    "inverted file": lambda: samplers.InvertedFileSampler(30, num_hard=2, start_step=None),
    "top k": lambda: samplers.TopKSampler(
        30, num_hard=2, tail=samplers.UnigramSampler(counts=np.arange(N))
    ),
}


@pytest.mark.parametrize("name", slow_but(["unigram", "lsh with a tail"], SAMPLERS))
def test_a_sampler_can_be_built_again_by_a_layer_with_enough_classes(name):
    sampler = SAMPLERS[name]()
    with pytest.raises(ValueError, match="num_classes"):
        layers.LargeOutput(20, sampler).build((None, DIM))
    head = layers.LargeOutput(N, sampler)
    head.build((None, DIM))
    _draws(head)
    with pytest.raises(ValueError, match="already built by a layer with 60 classes"):
        layers.LargeOutput(N, sampler).build((None, DIM))
    _draws(head)


class _FailsAtFirst(samplers.HardNegativeSampler):
    """Fails at the end of its first build, after creating all state."""

    fails = True

    def search(self, features, labels, layer):
        return labels

    def build(self, layer):
        super().build(layer)
        self.add_weight(layer, "more", (N,), "int64", "zeros")
        if self.fails:
            raise RuntimeError("broken off")


def test_a_failed_build_leaves_no_weights():
    tail = samplers.UnigramSampler(counts=np.arange(N))
    sampler = _FailsAtFirst(20, num_hard=1, tail=tail, start_step=None)
    head = layers.LargeOutput(N, sampler)
    with pytest.raises(RuntimeError, match="broken off"):
        head.build((None, DIM))
    assert head.weights == [] and head.embeddings is head.bias is head.seed_state is None
    assert not hasattr(head, "sampler_more")
    sampler.fails = False
    head.build((None, DIM))
    names = [weight.name for weight in head.weights]
    assert len(names) == len(set(names)) == 9
    _draws(head)


def test_wrong_counts_can_be_replaced():
    head = layers.LargeOutput(N, samplers.UnigramSampler(30, counts=np.ones(N + 1)))
    with pytest.raises(ValueError, match="counts of 61 classes"):
        head(FEATURES)
    head.sampler.adapt(np.arange(N))
    head(FEATURES)
    with pytest.raises(ValueError, match="counts of 62 classes"):
        head.sampler.adapt([61])
    _draws(head)
