"""Draws from fixed distributions: one function per op.

All return `(sampled_candidates int64 [num_sampled], true_expected_count,
sampled_expected_count [num_sampled])`, the triple of `tf.nn`'s candidate samplers;
`true_expected_count` has the shape of `true_classes` and is 1 where that is -1. They are
functions of their arguments: the same `seed` (int64 `[2]`) gives the same draw on any number
of threads. A label outside `[0, num_classes)` other than -1 is an `InvalidArgumentError`.
"""

import tensorflow as tf

from tf_largeout.ops.library import gen_ops


def uniform_sample(
    true_classes: tf.Tensor, seed: tf.Tensor, num_classes: int, num_sampled: int, unique: bool
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Draws classes with equal probabilities: expected count `num_sampled / num_classes`.

    Args:
        true_classes: int64, any shape: ids in `[0, num_classes)`, or -1 for padding.
        seed: int64 `[2]`.
        num_classes: Number of classes.
        num_sampled: Number of draws; with `unique`, at most `num_classes`.
        unique: Whether the classes are distinct; else the draws are independent.

    Returns:
        `(sampled_candidates, true_expected_count, sampled_expected_count)`, see above.

    Raises:
        tf.errors.InvalidArgumentError: If a label is out of range, or `unique` draws are to be
            more than there are classes.
    """
    return gen_ops.largeout_uniform_sample(
        true_classes, seed, num_classes=num_classes, num_sampled=num_sampled, unique=unique
    )


def log_uniform_sample(
    true_classes: tf.Tensor, seed: tf.Tensor, num_classes: int, num_sampled: int, unique: bool
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Draws classes from `q_c = log((c + 2) / (c + 1)) / log(num_classes + 1)`.

    Expected counts: `num_sampled q_c`, or with `unique` `min(1, tau q_c)`, where tau makes
    them sum to `num_sampled`.

    Args:
        true_classes: int64, any shape: ids in `[0, num_classes)`, or -1 for padding.
        seed: int64 `[2]`.
        num_classes: Number of classes.
        num_sampled: Number of draws; with `unique`, at most `num_classes`.
        unique: Whether the classes are distinct; else the draws are independent.

    Returns:
        `(sampled_candidates, true_expected_count, sampled_expected_count)`, see above.

    Raises:
        tf.errors.InvalidArgumentError: If a label is out of range, or `unique` draws are to be
            more than there are classes.
    """
    return gen_ops.largeout_log_uniform_sample(
        true_classes, seed, num_classes=num_classes, num_sampled=num_sampled, unique=unique
    )
