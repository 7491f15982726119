"""Checks labels of every accepted form and converts them to one matrix of class ids."""

from collections.abc import Iterator

import tensorflow as tf

from tf_largeout.tags import exclusions
from tf_largeout.types import TensorLike

_FORMS = (
    "Labels must be integer class ids: one per position, of shape features.shape[:-1], or "
    "several, with one more dimension and padded with -1, or ragged there "
    "(`tf.ragged.constant(rows, dtype=tf.int64)`)."
)


def as_label_matrix(y_true: TensorLike, features: tf.Tensor, num_classes: int) -> tf.Tensor:
    """Returns class ids as int64 `[B, L]`, where `B` is the product of leading dimensions.

    Columns of excluded classes are not changed, see `exclusions.split`.

    A matrix of only 0 and 1 with `num_classes > 2` columns is an error. It must be multi-hot,
    because as ids it would repeat class 0 or 1 in every example.

    Args:
        y_true: Integer class ids. Of shape `features.shape[:-1]` for one class per position.
            With one more dimension for several classes per position; this dimension is padded
            with -1 or ragged, and may have columns of `exclusions.encoded`.
        features: `[..., dim]`.
        num_classes: Ids must be -1 or in `[0, num_classes)`.

    Raises:
        ValueError: If the labels are not integers, or their static shape does not match the
            features.
        tf.errors.InvalidArgumentError: If their dynamic shape does not match the features, an
            id is out of range, or the labels are multi-hot.
    """
    labels = integer_ids(y_true)
    _check_static_shape(labels, features)
    rank = features.shape.rank - 1
    with tf.control_dependencies(_shape_checks(labels, features)):
        shape = tf.concat([tf.shape(labels), [1]], axis=0)  # a width of 1 where rank is equal
        matrix = tf.reshape(labels, [tf.reduce_prod(shape[:rank]), shape[rank]])
    matrix = tf.ensure_shape(matrix, [None, _static_width(labels, rank)])
    labels, excluded = exclusions.split(matrix)
    checks = [*_id_checks("Labels", labels, num_classes), *_form_checks(matrix, num_classes)]
    if excluded is not None:
        checks += _id_checks("`exclude`", excluded, num_classes)
    with tf.control_dependencies(checks):
        return tf.identity(matrix)


def first_occurrences(labels: tf.Tensor) -> tf.Tensor:
    """Tells, bool `[B, L]`, which labels are neither padding nor repeats of an earlier one.

    It takes O(L log L) time and O(L) memory per example, for int64 `labels` `[B, L]`.
    """
    if labels.shape[-1] == 1:
        return labels >= 0
    # `tf.math.top_k` breaks ties by position, so the earlier of equal labels comes first.
    ordered, places = tf.math.top_k(labels, tf.shape(labels)[1])
    repeats = tf.concat([ordered[:, :1] < -1, ordered[:, 1:] == ordered[:, :-1]], axis=1)
    by_place = tf.sort(2 * places + tf.cast(repeats, tf.int32), axis=-1)
    return (labels >= 0) & (by_place % 2 == 0)


def integer_ids(y_true: TensorLike) -> tf.Tensor:
    """Returns labels as int64. Unsigned labels of 2^63 or more become the largest int64."""
    try:
        if isinstance(y_true, tf.RaggedTensor) and y_true.dtype.is_integer:
            y_true = tf.cast(y_true, tf.int64).to_tensor(-1)
        labels = tf.convert_to_tensor(y_true)
    except (TypeError, ValueError) as error:
        kind = type(y_true).__name__
        raise ValueError(f"{_FORMS} Received labels of type {kind}: {error}") from error
    if not labels.dtype.is_integer:
        raise ValueError(f"{_FORMS} Received labels of dtype {labels.dtype.name}.")
    ids = tf.cast(labels, tf.int64)
    return tf.where(ids < 0, tf.int64.max, ids) if labels.dtype == tf.uint64 else ids


def _check_static_shape(labels: tf.Tensor, features: tf.Tensor) -> None:
    if labels.shape.rank is None:
        return
    several = labels.shape.rank == features.shape.rank
    leading = labels.shape[:-1] if several else labels.shape
    if not leading.is_compatible_with(features.shape[:-1]):
        raise ValueError(
            f"{_expected_shape(features)} Received labels of shape {labels.shape}."
        )


def _shape_checks(labels: tf.Tensor, features: tf.Tensor) -> list[tf.Operation | None]:
    """Returns an assertion that the dynamic leading dimensions match."""
    leading, rank = features.shape[:-1], features.shape.rank - 1
    known = labels.shape.rank is not None and labels.shape[:rank].is_fully_defined()
    if known and leading.is_fully_defined():
        return []
    shape, expected = tf.shape(labels), tf.shape(features)[:-1]
    padded = tf.concat([shape, tf.fill([rank], -1)], axis=0)[:rank]
    fits = tf.reduce_all(padded == expected) & (tf.size(shape) <= rank + 1)
    message = [_expected_shape(features), "Received labels of shape", shape]
    return [tf.debugging.Assert(fits, [*message, "for features", tf.shape(features)])]


def _expected_shape(features: tf.Tensor) -> str:
    return (
        f"For features of shape {features.shape} labels must have the shape "
        f"{features.shape[:-1]} (one class per position) or that and one more dimension "
        "(several classes, padded with -1)."
    )


def _static_width(labels: tf.Tensor, rank: int) -> int | None:
    if labels.shape.rank is None:
        return None
    return labels.shape[-1] if labels.shape.rank > rank else 1


def _id_checks(kind: str, ids: tf.Tensor, num_classes: int) -> Iterator[tf.Operation | None]:
    """Yields an assertion that ids are in range."""
    lowest, highest = tf.reduce_min(ids), tf.reduce_max(ids)
    in_range = (lowest >= -1) & (highest < num_classes)
    message = f"{kind} must be class ids in [0, {num_classes}), or -1 as padding. Received ids"
    yield tf.debugging.Assert(in_range, [message, "from", lowest, "to", highest])


def _form_checks(labels: tf.Tensor, num_classes: int) -> Iterator[tf.Operation | None]:
    """Yields an assertion that labels `[B, L]` are not multi-hot."""
    if num_classes <= 2 or labels.shape[1] not in (None, num_classes):
        return
    lowest, highest = tf.reduce_min(labels), tf.reduce_max(labels)
    zeros_and_ones = (lowest >= 0) & (lowest <= highest) & (highest <= 1)
    is_ids = ~(zeros_and_ones & (tf.shape(labels)[1] == num_classes))
    message = (
        f"Labels must be class ids. Received a matrix of {num_classes} columns, one per class, "
        "of only 0 and 1: multi-hot labels. Pass the ids of the classes that are 1, padded "
        "with -1 or ragged, such as tf.ragged.boolean_mask(tf.range(num_classes) + "
        "tf.zeros_like(y), y > 0). Received labels of shape"
    )
    yield tf.debugging.Assert(is_ids, [message, tf.shape(labels)])
