"""Draws from any distribution by tables: one function an op.

The samplers return the triple described in `sampling_ops`. The tables are made once, in
O(num_classes); a draw is O(1) in the mean.
"""

import tensorflow as tf

from tf_largeout.ops.library import gen_ops


def alias_table(weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Tables for `alias_sample` from positive float64 weights `[num_classes]`.

    Returns:
        slots int64 `[num_classes, 2]`, probability float32 `[num_classes]`.
    """
    return gen_ops.largeout_alias_table(weights)


def alias_sample(
    true_classes: tf.Tensor,
    seed: tf.Tensor,
    slots: tf.Tensor,
    probability: tf.Tensor,
    num_sampled: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Draws with replacement; expected counts are `num_sampled * probability`."""
    return gen_ops.largeout_alias_sample(
        true_classes, seed, slots, probability, num_sampled=num_sampled
    )


def pivotal_table(
    weights: tf.Tensor, num_sampled: int, num_buckets: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Tables for `pivotal_sample` from positive float64 weights `[num_classes]`.

    Returns:
        cumulative int64 `[num_classes + 1]`, index int64 `[num_buckets + 1]`.
    """
    return gen_ops.largeout_pivotal_table(
        weights, num_sampled=num_sampled, num_buckets=num_buckets
    )


def pivotal_sample(
    true_classes: tf.Tensor,
    seed: tf.Tensor,
    cumulative: tf.Tensor,
    index: tf.Tensor,
    num_sampled: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Draws without replacement; class c is drawn with probability `min(1, tau weights[c])`.

    `num_sampled` must be the one the table was made for.
    """
    return gen_ops.largeout_pivotal_sample(
        true_classes, seed, cumulative, index, num_sampled=num_sampled
    )
