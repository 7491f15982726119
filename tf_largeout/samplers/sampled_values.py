"""What samplers give losses."""

from typing import NamedTuple

import tensorflow as tf


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
