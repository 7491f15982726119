"""Hard classes of each example's own together with a sample of the rest."""

from typing import NamedTuple

import tensorflow as tf

from tf_largeout.samplers.sampled_values import SampledValues


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
