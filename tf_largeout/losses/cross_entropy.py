"""The cross entropy between sets of labels and logits."""

import tensorflow as tf

from tf_largeout.tags.output_tag import OutputTag


def softmax_cross_entropy(
    log_partition: tf.Tensor, true_logits: tf.Tensor, has_label: tf.Tensor
) -> tf.Tensor:
    """Returns the cross entropy of a softmax; each label has the target `1 / #labels`.

    `log_partition - sum(true_logits) / #labels`, where `log_partition` is the log of the sum
    of `exp(logit)` over all classes. 0 for an example without labels.

    Args:
        log_partition: Float `[B]`.
        true_logits: Float `[B, L]`.
        has_label: Bool `[B, L]`, False at padding.

    Returns:
        `[B]`.
    """
    weights = target_weights(has_label, true_logits.dtype)
    target = tf.reduce_sum(tf.where(has_label, weights * true_logits, 0), axis=-1)
    return tf.where(tf.reduce_any(has_label, axis=-1), log_partition - target, 0)


def target_weights(has_label: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Returns the target probability of each label, `1 / #labels`: `[B, L]`, 0 at padding."""
    present = tf.cast(has_label, dtype)
    return tf.math.divide_no_nan(present, tf.reduce_sum(present, axis=-1, keepdims=True))


def exact_cross_entropy(
    tag: OutputTag, labels: tf.Tensor, compute_dtype: str = "float32"
) -> tf.Tensor:
    """Returns `softmax_cross_entropy` per example, `[B]`, by one pass over all classes.

    Args:
        tag: The `OutputTag` of `B` examples.
        labels: int64 `[B, L]`, padded with -1.
        compute_dtype: Dtype of the products, "float32" or "bfloat16".
    """
    statistics = tag.class_statistics(labels, compute_dtype)
    return softmax_cross_entropy(statistics.log_partition, statistics.true_logits, labels >= 0)
