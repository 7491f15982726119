"""The classes with the highest logits, by an exact search."""

import keras
import tensorflow as tf

from tf_largeout.samplers.hard_negative_sampler import HardNegativeSampler
from tf_largeout.samplers.registry import named
from tf_largeout.samplers.sampler import ClassLayer


@named("top_k")
@keras.saving.register_keras_serializable(package="tf_largeout")
class TopKSampler(HardNegativeSampler):
    """Takes the classes with the highest logits per example, exactly: "TopK softmax".

    These are the hardest possible negatives. They cost a pass over all classes in each step,
    O(num_classes), so this sampler is the reference for approximate searches. Labels among them
    have no effect. With `num_hard=None`, as in Daghaghi et al. 2021, the sum over them replaces
    the partition function without a correction. With `num_hard` they are the head of an
    unbiased estimate, see `HeadAndTail`.

    Args:
        num_sampled: Number of classes an example is compared with, its own and shared ones
            together.
        num_hard: Number of classes with the highest logits per example; or None for all.
        tail: With `num_hard`, what draws the other classes: a name such as "uniform", or a
            static `Sampler`.
        start_step: With `num_hard`, the training step, from 0, that is the first to search.
            None for `num_classes / 200`, at least 100 and at most 1,000, or up to three
            times that while labels are new.
        seed: Optional int that the layer's draws start from; random if None.

    Example:
        head = LargeOutput(100_000, sampler=TopKSampler(1024, num_hard=64))
    """

    def search(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> tf.Tensor:
        k = min(self.num_searched, self.num_classes)
        _, ids = layer.class_matrix.top_k(features, k)
        return tf.pad(ids, [[0, 0], [0, self.num_searched - k]], constant_values=-1)
