"""The interface between samplers and losses: sampled classes and their expected counts."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import tensorflow as tf

# Kinds of expected counts, see `Sampler.counts_are`.
DRAWS, PROBABILITIES, NONE = COUNTS = ("draws", "probabilities", "none")
# The smallest expected count that samplers report, which is the smallest normal float32. Losses
# take its logarithm, so an expected count of 0 would make the loss of a label infinite.
LEAST_COUNT = 2.0**-126


class SampledValues(NamedTuple):
    """The result of a sampler for a loss: the same triple as that of TensorFlow's samplers.

    It can be passed to `tf.nn.sampled_softmax_loss(sampled_values=...)`. The triple of a
    `tf.random` candidate sampler can be passed to our losses.

    Attributes:
        sampled_candidates: int64, ids of the sampled classes: `[num_sampled]` if the batch
            shares them, or `[batch, num_sampled]`, padded with -1.
        true_expected_count: float32 `[batch, num_labels]`, the expected number of times that
            each label occurs in a sample; 1 for padding.
        sampled_expected_count: float32, the same for `sampled_candidates`, in its shape.
    """

    sampled_candidates: tf.Tensor
    true_expected_count: tf.Tensor
    sampled_expected_count: tf.Tensor

    @classmethod
    def of_pool(
        cls, pool: tf.Tensor, labels: tf.Tensor, counts_of: Callable[[tf.Tensor], tf.Tensor]
    ) -> "SampledValues":
        """Creates the sampled values of classes that the batch shares.

        Args:
            pool: int64 `[num_sampled]`, the sampled classes.
            labels: int64 `[batch, num_labels]`, padded with -1.
            counts_of: Function that maps class ids, int64 `[n]`, to their expected counts in a
                pool, float32 `[n]`. It is called once, with the pool followed by the labels.
        """
        positions = tf.where(labels >= 0)
        counts = counts_of(tf.concat([pool, tf.gather_nd(labels, positions)], axis=0))
        num_sampled = tf.shape(pool)[0]
        ones = tf.ones(tf.shape(labels))
        true_counts = tf.tensor_scatter_nd_update(ones, positions, counts[num_sampled:])
        return cls(pool, true_counts, counts[:num_sampled])


class HeadAndTail(NamedTuple):
    """The result of a sampler of hard negatives for a loss: two complementary samples.

    The head contains hard classes `T_b` for each example b, found by any method. The tail is
    one sample S for the batch, with expected counts. For each example, tail classes that are
    also in its head are ignored. So with the label y and the logits `o_c`, the following is an
    unbiased estimate of the partition function for any head (importance normalisation of Barber
    & Botev 2016, section 2.2, with `C = {y} + T_b`):

        e^{o_y} + sum_{c in T_b - y} e^{o_c} + sum_{s in S - T_b - y} e^{o_s} / E[count_s]

    Attributes:
        head: `SampledValues` with candidates `[batch, num_hard]`, distinct per example and
            padded with -1. Their expected counts are 1, because they are not drawn at random.
            `true_expected_count` is 1 for labels in the head and 0 for other labels.
        tail: `SampledValues` with candidates `[num_sampled]`.
    """

    head: SampledValues
    tail: SampledValues

    @property
    def true_expected_count(self) -> tf.Tensor:
        """float32 `[batch, num_labels]`: 1 for a label in the head, else as in the tail."""
        in_head = self.head.true_expected_count > 0
        return tf.where(in_head, self.head.true_expected_count, self.tail.true_expected_count)


# What a sampler draws for a step.
Sample: TypeAlias = SampledValues | HeadAndTail
