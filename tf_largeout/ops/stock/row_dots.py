"""Logits of different classes for each example; see `ops/row_dot_ops.py`.

The rows of the classes, `[batch, num_ids, dim]`, are in memory. The gradients of the variables
have as many rows as there are ids, merged as in `rows`.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_largeout.ops import places
from tf_largeout.ops.stock import errors, tables
from tf_largeout.ops.stock.rows import largeout_merge_rows

_LOWEST = tf.float32.min
_NAN = float("nan")


def largeout_row_dots(
    features: tf.Tensor,
    embeddings: tf.Tensor,
    bias: Sequence[tf.Tensor],
    ids: tf.Tensor,
    shared_ids: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
    """Returns the logits `[batch, num_ids]`, and the rows and biases of the shared ids."""
    features = errors.tensor(features, tf.float32, "features")
    ids = errors.tensor(ids, tf.int64, "ids")
    shared_ids = errors.tensor(shared_ids, tf.int64, "shared_ids")
    _check_shapes(features, embeddings, bias, ids, shared_ids)
    num_classes = tables.num_rows(embeddings)
    ids = errors.class_ids(ids, num_classes, "ids")
    shared_ids = errors.class_ids(shared_ids, num_classes, "shared_ids", allow_padding=False)
    # One gather reads all rows: XLA copies a table if its update does not depend on each read.
    with places.scope_of(ids, shared_ids):
        is_class = ids != -1
        own_ids = tf.reshape(tf.where(is_class, ids, 0), [-1])
        read_ids = tf.concat([shared_ids, own_ids], axis=0)
        exists = (read_ids >= 0) & (read_ids < num_classes)
        row_ids = tf.concat([tf.reshape(ids, [-1]), shared_ids], axis=0)
    num_shared = tf.size(shared_ids)

    # Handles are read from the outer scope: as arguments they lose their dtype and shape.
    @tf.custom_gradient
    def dots(features: tf.Tensor, *_: tf.Tensor) -> Any:
        rows = tf.cast(tables.gather(embeddings, read_ids), tf.float32)
        rows = tf.where(_column(exists), rows, _NAN)
        own, shared = (
            tf.reshape(part, tf.concat([tf.shape(each), tf.shape(rows)[1:]], axis=0))
            for part, each in ((rows[num_shared:], ids), (rows[:num_shared], shared_ids))
        )
        shared_biases = []
        logits = tf.linalg.matvec(own, features)
        for each in bias:
            biases = tf.where(exists, tables.gather(each, read_ids), _NAN)
            logits += tf.reshape(biases[num_shared:], tf.shape(ids))
            shared_biases.append(tf.reshape(biases[:num_shared], tf.shape(shared_ids)))
        logits = tf.where(is_class, logits, _LOWEST)

        def gradient(
            d_logits: tf.Tensor, d_shared: tf.Tensor, *d_biases: tf.Tensor
        ) -> list[Any]:
            d_logits = tf.where(is_class, d_logits, 0.0)
            d_own = _column(d_logits) * features[:, tf.newaxis]
            flat = tf.reshape(d_own, tf.stack([tf.size(ids), tf.shape(features)[1]]))
            d_rows = tf.concat([flat, d_shared], axis=0)
            for d_bias in d_biases:  # the last column
                d_bias = tf.concat([tf.reshape(d_logits, [-1]), d_bias], axis=0)
                d_rows = tf.concat([d_rows, _column(d_bias)], axis=1)
            d_rows, merged_ids = largeout_merge_rows(d_rows, row_ids)
            shape = tables.shape_of(embeddings)
            slices = [d_rows[:, :-1], d_rows[:, -1]] if d_biases else [d_rows]
            return [
                tf.linalg.matvec(own, d_logits, transpose_a=True),
                *(tf.IndexedSlices(x, merged_ids, shape[: x.shape.rank]) for x in slices),
            ]

        return (logits, shared, *shared_biases), gradient

    logits, shared_rows, *shared_biases = dots(features, embeddings, *bias)
    return logits, shared_rows, shared_biases


def _column(tensor: tf.Tensor) -> tf.Tensor:
    return tensor[..., tf.newaxis]


def _check_shapes(
    features: tf.Tensor,
    embeddings: tf.Tensor,
    bias: Sequence[tf.Tensor],
    ids: tf.Tensor,
    shared_ids: tf.Tensor,
) -> None:
    tables.check(embeddings, "embeddings", [tf.float32, tf.bfloat16], [None, None])
    shape = tables.static_shape(embeddings)
    if len(bias) > 1:
        errors.fail(f"bias must be one variable or none, got {len(bias)}")
    for one in bias:
        tables.check(one, "bias", shape=shape[:1])
    batch = features.shape[0] if features.shape.rank == 2 else None
    if not features.shape.is_compatible_with([None, shape[1]]):
        errors.fail(
            f"features must be [batch, dim] with dim {shape[1]} as in the embeddings, got "
            f"{errors.sizes(features)}"
        )
    if not ids.shape.is_compatible_with([batch, None]):
        errors.fail(
            f"ids must be [batch, num_ids] with batch {batch} as in the features, got "
            f"{errors.sizes(ids)}"
        )
    if shared_ids.shape.rank not in (1, None):
        errors.fail(f"shared_ids must be [num_shared], got {errors.sizes(shared_ids)}")
