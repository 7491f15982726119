"""The form of `KernelTreeSampler` whose draws are the head of a corrected tail."""

import tensorflow as tf

from tf_largeout.samplers.class_trees import ClassTrees
from tf_largeout.samplers.hard_negative_sampler import HardNegativeSampler, distinct_in_row
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.types import Config


class KernelTreeHead(HardNegativeSampler):
    """Own classes of each row, drawn from a kernel tree and made distinct, and a shared tail.

    Args:
        num_sampled: Number of classes a row is compared with.
        num_hard: Number of draws of a row; of those that give one class the first counts.
        tail: What draws the others.
        trees: The trees, which its owner builds.
    """

    name_in_messages = "KernelTreeSampler"

    def __init__(
        self,
        num_sampled: int,
        num_hard: int,
        tail: Sampler | Config | str | None,
        trees: ClassTrees,
    ) -> None:
        super().__init__(num_sampled, num_hard, tail)
        self._trees = trees

    def search(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> tf.Tensor:
        seed, matrix = layer.next_seed(), layer.class_matrix
        ids, _, _ = self._trees.sample(features, labels[:, :0], seed, self.num_searched, matrix)
        return distinct_in_row(ids)
