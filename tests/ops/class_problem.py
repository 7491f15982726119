"""A small problem for passes over all classes."""

import itertools

import numpy as np
import tensorflow as tf

from tests.reference import class_scan as reference
from tf_largeout.ops import class_scan_ops

# (batch, num_classes, dim, num_labels): not multiples of a block size, and small ones.
SHAPES = [(1, 1, 1, 1), (3, 7, 5, 2), (65, 1001, 33, 3), (130, 97, 128, 1), (20, 300, 16, 9)]


class Problem:
    """Random features, classes and labels; small integers give exact ties."""

    def __init__(self, batch, num_classes, dim, num_labels, ties=False, bias=True, seed=0):
        rng = np.random.default_rng(seed)

        def draw(*shape):
            values = rng.integers(-1, 2, shape) if ties else rng.normal(size=shape)
            return values.astype(np.float32)

        self.features = draw(batch, dim)
        self.embeddings = draw(num_classes, dim)
        self.bias = draw(num_classes) if bias else None
        self.labels = rng.integers(-1, num_classes, (batch, num_labels))
        self.variables = [
            tf.Variable(self.embeddings),
            tf.Variable(self.bias) if bias else None,
        ]

    @property
    def handles(self):
        return [None if v is None else v.handle for v in self.variables]

    @property
    def logits(self):
        return reference.logits(self.features, self.embeddings, self.bias)

    def statistics(self):
        return class_scan_ops.class_statistics(self.features, *self.handles, self.labels)

    def shard_statistics(self, true_logits, num_shards=3):
        """Returns the statistics of unequal shards of the classes, one result per shard."""
        num_classes = len(self.embeddings)
        bounds = [num_classes * i * i // num_shards**2 for i in range(num_shards + 1)]
        return [
            class_scan_ops.class_statistics(
                self.features,
                *(None if v is None else tf.Variable(v[begin:end]) for v in self.variables),
                self.labels,
                true_logits,
                begin,
            )
            for begin, end in itertools.pairwise(bounds)
        ]

    def top_k(self, k, packed=False):
        classes = class_scan_ops.pack_classes(*self.handles) if packed else None
        return class_scan_ops.class_top_k(self.features, *self.handles, k, classes)
