"""Draws of classes from the uniform and the log-uniform distribution.

`uniform_sample` and `log_uniform_sample` return `(sampled_candidates, true_expected_count,
sampled_expected_count)`, the triple of `tf.nn`'s candidate samplers. The same `seed` gives the
same draw on any number of threads.
"""

import math

import tensorflow as tf

from tf_largeout.ops import random_numbers
from tf_largeout.ops.library import gen_ops


def uniform_sample(
    true_classes: tf.Tensor, seed: tf.Tensor, num_classes: int, num_sampled: int, unique: bool
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Draws classes with equal probabilities: expected counts `num_sampled / num_classes`."""
    return gen_ops.largeout_uniform_sample(
        true_classes, seed, num_classes=num_classes, num_sampled=num_sampled, unique=unique
    )


def log_uniform_sample(
    true_classes: tf.Tensor, seed: tf.Tensor, num_classes: int, num_sampled: int, unique: bool
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Draws classes from `q_c = log((c + 2) / (c + 1)) / log(num_classes + 1)`.

    The expected count of class c is `num_sampled q_c`, or with `unique` `min(1, tau q_c)`,
    where tau is such that the expected counts sum to `num_sampled`.
    """
    return gen_ops.largeout_log_uniform_sample(
        true_classes, seed, num_classes=num_classes, num_sampled=num_sampled, unique=unique
    )


def own_uniform_draws(
    batch: int | tf.Tensor, seed: tf.Tensor, num_classes: int, num_sampled: int
) -> tf.Tensor:
    """Draws classes with equal probabilities for each example, with replacement.

    `batch` is the number of examples. Returns int64 `[batch, num_sampled]`.
    """
    return random_numbers.uniform_ids([batch, num_sampled], seed, num_classes)


def own_log_uniform_draws(
    batch: int | tf.Tensor, seed: tf.Tensor, num_classes: int, num_sampled: int
) -> tf.Tensor:
    """Draws from the distribution of `log_uniform_sample`, as `own_uniform_draws` does."""
    shape = [batch, num_sampled]
    uniform = random_numbers.uniform_floats(shape, seed)
    # x = (num_classes + 1)^uniform is in [c + 1, c + 2) with the probability of class c.
    ids = tf.cast(tf.exp(uniform * math.log(num_classes + 1)), tf.int64) - 1
    return tf.clip_by_value(ids, 0, num_classes - 1)
