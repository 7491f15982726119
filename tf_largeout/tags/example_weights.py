"""Weights and masks of rows, in the shape of the rows."""

import tensorflow as tf

from tf_largeout.types import TensorLike


def per_row(
    weights: TensorLike, features: tf.Tensor, dtype: tf.DType | str = "float32"
) -> tf.Tensor:
    """`weights` for each row of `features`.

    Dimensions are aligned in front, as `sample_weight` means it: weights `[batch]` of
    sequences `[batch, time, dim]` hold for whole sequences. (Keras's own losses align behind,
    and weigh the steps of time if there happen to be as many.)

    Args:
        weights: Numbers or bools, `[batch]`, `[batch, time]`, ...; each dimension that of the
            rows or 1, and one of 1 may follow.
        features: `[batch, ..., dim]`.
        dtype: Of the result.

    Returns:
        The weights broadcast to `[batch, ...]`, the shape of `features` without the last.

    Raises:
        ValueError: If the shapes do not fit, as far as they are known.
    """
    weights = tf.cast(tf.convert_to_tensor(weights), dtype)
    rows = features.shape[:-1]
    if not _fits(weights.shape, rows):
        raise ValueError(
            f"`sample_weight` must have one weight for each row, shape {rows}, or a part of "
            f"its dimensions from the first on. Received: shape {weights.shape}."
        )
    shape = tf.concat([tf.shape(weights), tf.ones([rows.rank], tf.int32)], 0)[: rows.rank]
    return tf.broadcast_to(tf.reshape(weights, shape), tf.shape(features)[:-1])


def _fits(given: tf.TensorShape, rows: tf.TensorShape) -> bool:
    if given.rank is None:
        return True
    sizes, behind = given[: rows.rank], given[rows.rank :]
    return behind.num_elements() in (None, 1) and all(
        size in (None, 1) or of_rows in (None, size)
        for size, of_rows in zip(sizes, rows, strict=False)
    )
