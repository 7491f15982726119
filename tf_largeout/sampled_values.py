"""What samplers give losses: the classes of a step and how often they are expected."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

# What the expected counts of a sampler are, see `Sampler.counts_are`.
DRAWS, PROBABILITIES, NONE = COUNTS = ("draws", "probabilities", "none")
# What samplers report for an expected count below it, the least normal float32: losses take its
# logarithm, and that of 0 would spoil the loss of a label that is never drawn anyway.
LEAST_COUNT = 2.0**-126


class SampledValues(NamedTuple):
    """What a sampler gives a loss: the triple of `tf.nn`'s candidate samplers.

    Being the same tuple, it can be passed to `tf.nn.sampled_softmax_loss(sampled_values=...)`,
    and the triple of a `tf.random` candidate sampler can be passed to our losses.

    Attributes:
        sampled_candidates: int64, ids of the classes drawn: `[num_sampled]` shared by the
            batch, or `[batch, num_sampled]`, where -1 stands for no class.
        true_expected_count: float32 `[batch, num_labels]`, the expected number of times each
            label occurs in a sample; 1 for padded labels.
        sampled_expected_count: float32, the same for `sampled_candidates`, in its shape.
    """

    sampled_candidates: tf.Tensor
    true_expected_count: tf.Tensor
    sampled_expected_count: tf.Tensor

    @classmethod
    def of_pool(
        cls, pool: tf.Tensor, labels: tf.Tensor, counts_of: Callable[[tf.Tensor], tf.Tensor]
    ) -> "SampledValues":
        """A sample that the batch shares, whose expected counts are found for any classes.

        Args:
            pool: int64 `[num_sampled]`.
            labels: int64 `[batch, num_labels]`, padded with -1.
            counts_of: Maps int64 `[n]`, those of the pool and then the labels, to float32
                `[n]`, how often each is expected in a pool. Called once.
        """
        places = tf.where(labels >= 0)
        counts = counts_of(tf.concat([pool, tf.gather_nd(labels, places)], axis=0))
        num_sampled = tf.shape(pool)[0]
        ones = tf.ones(tf.shape(labels))
        true_counts = tf.tensor_scatter_nd_update(ones, places, counts[num_sampled:])
        return cls(pool, true_counts, counts[:num_sampled])


class HeadAndTail(NamedTuple):
    """What a sampler of hard negatives gives a loss: two samples that complete each other.

    The head holds hard classes `T_b` of each row's own, found by any means; the tail is one
    sample S for the batch, corrected by its expected counts. A tail class that is in the head
    of a row has no effect on that row, so that

        e^{o_y} + sum_{c in T_b - y} e^{o_c} + sum_{s in S - T_b - y} e^{o_s} / E[count_s]

    is an unbiased estimate of the partition function whatever the head is (importance
    normalisation of Barber & Botev 2016, section 2.2, with `C = {y} + T_b`).

    Attributes:
        head: `SampledValues` with candidates `[batch, num_hard]`, distinct in a row and padded
            with -1, and expected counts of 1: they are there for certain. The
            `true_expected_count` is 1 for labels in the head and 0 for others.
        tail: `SampledValues` with candidates `[num_sampled]`.
    """

    head: SampledValues
    tail: SampledValues

    @property
    def true_expected_count(self) -> tf.Tensor:
        """float32 `[batch, num_labels]`: how often a label is expected in head and tail."""
        in_head = self.head.true_expected_count > 0
        return tf.where(in_head, self.head.true_expected_count, self.tail.true_expected_count)
