"""Draws of classes from any distribution, by precomputed tables.

The tables are computed once, in O(num_classes). A draw takes O(1) time on average.
"""

import tensorflow as tf

from tf_largeout.ops import random_numbers
from tf_largeout.ops.library import gen_ops

_ALIAS_TOTAL = 2**60  # the threshold of a slot that always gives its own class


def alias_table(weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the tables `(slots, probability)` for `alias_sample` (Walker 1977)."""
    return gen_ops.largeout_alias_table(weights)


def alias_sample(
    true_classes: tf.Tensor,
    seed: tf.Tensor,
    slots: tf.Tensor,
    probability: tf.Tensor,
    num_sampled: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Draws classes with replacement; the expected counts are `num_sampled * probability`."""
    return gen_ops.largeout_alias_sample(
        true_classes, seed, slots, probability, num_sampled=num_sampled
    )


def own_alias_draws(
    batch: int | tf.Tensor, seed: tf.Tensor, slots: tf.Tensor, num_sampled: int
) -> tf.Tensor:
    """Draws from the distribution of `alias_sample` for each example, with replacement.

    Returns int64 `[batch, num_sampled]`. It does not notice an empty table; `alias_sample`,
    which computes the expected counts, does.
    """
    shape = [batch, num_sampled]
    of_slot, of_place = random_numbers.two_seeds(seed)
    slot = random_numbers.uniform_ids(shape, of_slot, slots.shape[0])
    place = random_numbers.uniform_ids(shape, of_place, _ALIAS_TOTAL)
    threshold, alias = tf.unstack(tf.gather(slots, slot), axis=-1)
    return tf.where(place < threshold, slot, alias)


def pivotal_table(
    weights: tf.Tensor, num_sampled: int, num_buckets: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the tables `(cumulative, index)` for `pivotal_sample`."""
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
    """Draws classes without replacement, class c with probability `min(1, tau weights[c])`.

    This is the expected count of class c. The method is ordered pivotal sampling (Deville &
    Tille 1998; Chauvet 2012) from a random start.
    """
    return gen_ops.largeout_pivotal_sample(
        true_classes, seed, cumulative, index, num_sampled=num_sampled
    )
