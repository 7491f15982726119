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

    These are the hardest possible negatives. Each step makes a pass over all classes, in
    O(num_classes), so this sampler is the reference for approximate searches. A label among
    these classes has no effect. With `num_hard=None`, as in Daghaghi et al. 2021, the sum over
    these classes replaces the partition function, without a correction. With `num_hard`, these
    classes are the head of a `HeadAndTail`, and the estimate of the partition function is
    unbiased.

    Args:
        num_sampled: Number of sampled classes per example: those with the highest logits plus
            those of the tail.
        num_hard: Number of classes with the highest logits per example; or None for all.
        tail: With `num_hard`, the sampler of the other classes: a name such as "uniform", or a
            static `Sampler`.
        start_step: With `num_hard`, the first training step that searches, counted from 0. None
            starts at step `num_classes / 200`, limited to the range from 100 to 1,000. If most
            labels have rarely occurred by then, the search starts later, but no later than at
            three times this step.
        seed: Int that determines the random draws; None for a random seed.

    Example:
        head = LargeOutput(100_000, sampler=TopKSampler(1024, num_hard=64))
    """

    def search(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> tf.Tensor:
        k = min(self.num_searched, self.num_classes)
        _, ids = layer.class_matrix.top_k(features, k)
        return tf.pad(ids, [[0, 0], [0, self.num_searched - k]], constant_values=-1)
