"""The form of `KernelTreeSampler` with `num_hard`: draws from the tree, and a shared tail."""

from collections.abc import Callable

import tensorflow as tf

from tf_largeout.samplers.hard_negative_sampler import HardNegativeSampler, distinct_in_row
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.types import Config


class KernelTreeHead(HardNegativeSampler):
    """Distinct classes per example, drawn from a kernel tree, and a shared tail.

    Args:
        num_sampled: Number of sampled classes per example.
        num_hard: Number of draws per example from the tree; repeats are dropped.
        tail: The sampler of the remaining negatives, which all examples share.
        sample: Function that draws from the tree. It takes `(features, labels,
            num_sampled, layer)` and returns the same values as `KernelTree.sample`.
    """

    name_in_messages = "KernelTreeSampler"

    def __init__(
        self,
        num_sampled: int,
        num_hard: int,
        tail: Sampler | Config | str | None,
        sample: Callable[..., tuple[tf.Tensor, tf.Tensor, tf.Tensor]],
    ) -> None:
        super().__init__(num_sampled, num_hard, tail)
        self._sample = sample

    def search(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> tf.Tensor:
        ids, _, _ = self._sample(features, labels[:, :0], self.num_searched, layer)
        return distinct_in_row(ids)
