"""Checks of the ids in bags: which one is padding, and those that only the step can make."""

from typing import Any

import tensorflow as tf

from tf_largeout.arguments import is_whole


def checked_padding_id(value: Any) -> int | None:
    """The argument `padding_id`, which may be negative, as an int or None.

    Raises:
        ValueError: If it is something else.
    """
    if value is None or is_whole(value):
        return None if value is None else int(value)
    raise ValueError(
        f"`padding_id` must be an integer or None. Received: padding_id={value!r}."
    )


def refuse_sparse(ids: Any, layer: str) -> None:
    """Raises a ValueError if `ids`, or the weights of ids, are a sparse tensor.

    Such a tensor may hold ids, or counts of the ids that its columns stand for.
    """
    if isinstance(ids, tf.SparseTensor) or getattr(ids, "sparse", False):
        raise ValueError(
            f"Layer '{layer}' takes padded or ragged ids, no sparse tensors. Received: a "
            f"sparse tensor of shape {tuple(ids.shape)}. If its values are ids, pass "
            "`tf.sparse.to_dense(ids, padding_id)`. If it has a column for each id, pass to "
            "an `EmbeddingBag` the ids of the columns that are not 0, and the values as "
            "`weights`, both padded."
        )


def in_range(
    ids: tf.Tensor, input_dim: int, padding_id: int | None, layer: str
) -> tf.Operation | None:
    """An op that fails where an id is no row of the table of `input_dim` rows."""
    low, high = tf.reduce_min(ids), tf.reduce_max(ids)
    padding = "" if padding_id is None else f" or {padding_id} for padding"
    message = (
        f"`ids` of layer '{layer}' must be at least 0 and below "
        f"input_dim={input_dim}{padding}. Received ids from, to:"
    )
    return tf.debugging.Assert((low >= 0) & (high < input_dim), [message, low, high])


def not_values(ids: tf.Tensor, input_dim: int, layer: str) -> list[tf.Operation | None]:
    """Ops that fail where `ids` are a matrix of one value for each id: multi-hot, or TF-IDF.

    Of floats that a `Sequential` without `keras.Input` is called with, Keras cuts the
    fractions: what is below 1 becomes 0, the padding, and nothing would be learned.
    """
    if input_dim <= 2 or ids.shape[-1] != input_dim:
        return []
    low, high = tf.reduce_min(ids), tf.reduce_max(ids)
    message = (
        f"Layer '{layer}' takes ids. Received a matrix of input_dim={input_dim} columns, of 0 "
        "and 1 alone once fractions are cut: one value for each id. Pass the ids of the "
        "columns that are not 0, and the values as `weights`, both padded. Received ids of "
        "shape"
    )
    is_values = (low >= 0) & (low <= high) & (high <= 1)
    return [tf.debugging.Assert(~is_values, [message, tf.shape(ids)])]
