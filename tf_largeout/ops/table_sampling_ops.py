"""Draws of classes from any distribution, by precomputed tables.

The tables are computed once, in O(num_classes). A draw takes O(1) time on average.
"""

import tensorflow as tf

from tf_largeout.ops.library import gen_ops

_ALIAS_TOTAL = 2**60  # the threshold of a slot that always gives its own class


def alias_table(weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the tables for `alias_sample` (Walker 1977).

    Args:
        weights: float64 `[num_classes]`, positive and finite, with a finite sum.

    Returns:
        `(slots, probability)`: int64 `[num_classes, 2]`, where slot c gives class c with
        probability `slots[c, 0] / 2^60` and otherwise class `slots[c, 1]`; float32
        `[num_classes]`, the normalized weights.
    """
    return gen_ops.largeout_alias_table(weights)


def alias_sample(
    true_classes: tf.Tensor,
    seed: tf.Tensor,
    slots: tf.Tensor,
    probability: tf.Tensor,
    num_sampled: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Draws classes with replacement; the expected counts are `num_sampled * probability`.

    `slots` and `probability` are those of `alias_table`. The others, the result and the errors
    are those of `sampling_ops.uniform_sample`; empty tables are also an error.
    """
    return gen_ops.largeout_alias_sample(
        true_classes, seed, slots, probability, num_sampled=num_sampled
    )


def own_alias_draws(
    batch: int | tf.Tensor, seed: tf.Tensor, slots: tf.Tensor, num_sampled: int
) -> tf.Tensor:
    """Draws from the distribution of `alias_sample` for each example, with replacement.

    `batch` is the number of examples. Returns int64 `[batch, num_sampled]`. It does not notice
    an empty table; `alias_sample`, which computes the expected counts, does.
    """
    shape = [batch, num_sampled]
    seeds = tf.random.experimental.stateless_split(seed, 2)
    slot, place = (
        tf.random.stateless_uniform(shape, one, maxval=most, dtype=tf.int64, alg="philox")
        for one, most in zip(tf.unstack(seeds), (slots.shape[0], _ALIAS_TOTAL), strict=True)
    )
    threshold, alias = tf.unstack(tf.gather(slots, slot), axis=-1)
    return tf.where(place < threshold, slot, alias)


def pivotal_table(
    weights: tf.Tensor, num_sampled: int, num_buckets: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the tables for `pivotal_sample`.

    Args:
        weights: float64 `[num_classes]`, positive and finite, with a finite sum.
        num_sampled: Number of classes per draw, at most `num_classes`.
        num_buckets: More buckets make a draw faster; `num_classes / 4` is enough.

    Returns:
        `(cumulative, index)`: int64 `[num_classes + 1]`, sums of the inclusion probabilities
        in units that make them integers; int64 `[num_buckets + 1]`, the start positions of the
        search in them.
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
    """Draws classes without replacement, class c with probability `min(1, tau weights[c])`.

    This is the expected count of class c. tau is such that the expected counts sum to
    `num_sampled`. The method is ordered pivotal sampling (Deville & Tille 1998; Chauvet 2012)
    from a random start.

    `cumulative` and `index` are those of `pivotal_table` for the same `num_sampled`. The other
    arguments, the result and the errors are those of `sampling_ops.uniform_sample`; empty or
    other tables are also errors.
    """
    return gen_ops.largeout_pivotal_sample(
        true_classes, seed, cumulative, index, num_sampled=num_sampled
    )
