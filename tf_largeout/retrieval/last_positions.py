"""The last position of each sequence, for `predict_top_k`."""

import tensorflow as tf


def last_positions(
    features: tf.Tensor, mask: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Returns the features of the last unmasked position of each sequence.

    Args:
        features: `[B, T, dim]`.
        mask: bool `[B, T]`, false at padding, which may be on the left or on the right; or
            None, for position `T - 1`.

    Returns:
        `(features, has_position)`: `[B, dim]`, and bool `[B]`, false if all positions are
        masked; None without a mask.

    Raises:
        ValueError: If the features are not sequences.
    """
    if features.shape.rank != 3:
        raise ValueError(
            "`positions='last'` needs a model of sequences, with features [batch, time, dim] "
            f"before its output layer. Received: features of shape {features.shape}. Omit "
            "`positions`."
        )
    if mask is None:
        return features[:, -1], None
    mask, steps = tf.cast(mask, tf.bool), tf.range(tf.shape(features)[1])
    last = tf.reduce_max(tf.where(mask, steps, 0), axis=1)
    return tf.gather(features, last, batch_dims=1), tf.reduce_any(mask, axis=1)
