"""The form of `KernelTreeSampler` whose draws are the head of a corrected tail."""

import tensorflow as tf

from tf_largeout.samplers.hard_negative_sampler import HardNegativeSampler, distinct_in_row
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.search import KernelTree
from tf_largeout.types import Config


class KernelTreeHead(HardNegativeSampler):
    """Own classes of each row, drawn from a kernel tree and made distinct, and a shared tail.

    Args:
        num_sampled: Number of classes a row is compared with.
        num_hard: Number of draws of a row; of those that give one class the first counts.
        tail: What draws the others.
        tree: The tree, which its owner builds.
    """

    name_in_messages = "KernelTreeSampler"

    def __init__(
        self,
        num_sampled: int,
        num_hard: int,
        tail: Sampler | Config | str | None,
        tree: KernelTree,
    ) -> None:
        super().__init__(num_sampled, num_hard, tail)
        self._tree = tree

    def search(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> tf.Tensor:
        ids, _, _ = self._tree.sample(
            features,
            labels[:, :0],
            layer.next_seed(),
            self.num_searched,
            *layer.class_matrix.variables(),
        )
        return distinct_in_row(ids)
