"""A `HierarchicalOutput` with known weights, and the results of the reference."""

import numpy as np

from tests import harness
from tests.reference import hierarchical_softmax as reference
from tf_largeout import layers

N, DIM, BATCH, CLUSTERS = 43, 5, 6, 7
SEVERAL = harness.pad([[3], [3, 5, 42], [0, 36], [], [7, 8], [12, 1]])
RNG = np.random.default_rng(11)
# Clusters of 1 to 20 classes with scattered ids.
UNEVEN = np.concatenate(
    [np.arange(CLUSTERS), RNG.integers(0, CLUSTERS, N - CLUSTERS) ** 2 // 7]
)
UNEVEN = RNG.permutation(UNEVEN)
PARTITIONS = {
    "equal parts": {"num_clusters": CLUSTERS},
    "default": {},
    "given": {"clusters": UNEVEN},
    "one": {"num_clusters": 1},
    "one class each": {"num_clusters": N},
    "without bias": {"use_bias": False},
}


class Problem:
    """A layer with random weights, and its features, weights and clusters for the oracle."""

    def __init__(self, dtype="float32", seed=3, **kwargs):
        rng = np.random.default_rng(seed)
        self.layer = layers.HierarchicalOutput(N, dtype=dtype, **kwargs)
        self.layer.build((None, DIM))
        self.features = rng.normal(size=(BATCH, DIM)).astype("float32")
        for weight in self.layer.trainable_weights:
            weight.assign(rng.normal(size=weight.shape))
        self.clusters = self.layer.cluster_of_class.numpy()

    @property
    def weights(self):
        """The arrays `(embeddings, bias, cluster_embeddings, cluster_bias)`."""
        layer = self.layer
        names = ("embeddings", "bias", "cluster_embeddings", "cluster_bias")
        found = (getattr(layer, name) for name in names)
        sizes = (N, N, layer.num_clusters, layer.num_clusters)
        return [
            np.zeros(size) if weight is None else weight.numpy()
            for weight, size in zip(found, sizes, strict=True)
        ]

    def expected(self, features=None):
        features = self.features if features is None else features
        return reference.log_probabilities(features, *self.weights, self.clusters)
