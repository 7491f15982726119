"""Weights and masks of examples, in the leading shape of the features."""

import tensorflow as tf

from tf_largeout.types import TensorLike


def per_example(
    weights: TensorLike, features: tf.Tensor, dtype: tf.DType | str = "float32"
) -> tf.Tensor:
    """Broadcasts `weights` to the leading dimensions of `features`.

    It aligns the first dimensions, as `sample_weight` requires: weights `[batch]` of sequences
    `[batch, time, dim]` apply to whole sequences. Keras's own losses align the last dimensions.
    If the batch has as many sequences as time steps, they would apply these weights to time
    steps.

    Args:
        weights: Numbers or bools, `[batch]`, `[batch, time]`, ...; each dimension is equal to
            that of the features, or 1. One more dimension of 1 may follow.
        features: `[batch, ..., dim]`.
        dtype: Dtype of the result.

    Returns:
        The weights, `[batch, ...]`, in the shape of `features` without the last dimension.

    Raises:
        ValueError: If the known dimensions do not match, or the weights are strings.
    """
    weights, rows = tf.convert_to_tensor(weights), features.shape[:-1]
    if not _fits(weights.shape, rows) or weights.dtype == tf.string:
        raise ValueError(
            f"`sample_weight` must have one number per example, shape {rows}, or fewer "
            "dimensions, equal to the first ones of this shape. "
            f"Received: shape {weights.shape} and dtype "
            f"{weights.dtype.name}. For weights of classes, pass `class_weights` to the loss; "
            "to leave out labels of an example, set them to -1."
        )
    weights = tf.cast(weights, dtype)
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
