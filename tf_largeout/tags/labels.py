"""Checks labels of every accepted form and converts them to one matrix of class ids."""

import tensorflow as tf

from tf_largeout import checks
from tf_largeout.tags import exclusions
from tf_largeout.types import TensorLike

# How far above 1 the sum of soft targets may be.
_ROUNDING = 1e-3
_FORMS = (
    "Labels must be integer class ids. For one label per position, their shape must be "
    "features.shape[:-1]. For several labels, it must have one more dimension, padded with -1 "
    "or ragged (`tf.ragged.constant(rows, dtype=tf.int64)`)."
)
_TARGETS = (
    "`SoftmaxLoss`, `SampledSoftmaxLoss`, `AbsoluteSoftmaxLoss`, `TaylorSoftmaxLoss`, "
    "`SphericalSoftmaxLoss`, `ZLoss` and `SquaredErrorLoss` also take targets of the classes, "
    "as a tf.SparseTensor of floats: tf.sparse.from_dense(y)."
)
_ONE_HOT = (
    "Cast ids to an integer type. For one-hot labels, pass the ids: numpy.argmax(y, axis=-1). "
    f"{_TARGETS}"
)
_NAMES = (
    "For names of classes, pass their ids: keras.layers.StringLookup(vocabulary=class_names, "
    "num_oov_indices=0)(y)."
)


def as_label_matrix(
    y_true: TensorLike,
    features: tf.Tensor,
    num_classes: int,
    ignore_class: int | None = None,
) -> tf.Tensor:
    """Returns class ids as int64 `[B, L]`, where `B` is the product of leading dimensions.

    Columns of excluded classes are not changed, see `exclusions.split`.

    A matrix of only 0 and 1 with `num_classes` columns is an error if there is more than one
    class. It must be multi-hot: as ids, it would give every example all classes, or one class
    repeatedly.

    Args:
        y_true: Integer class ids. Of shape `features.shape[:-1]` for one class per position.
            With one more dimension for several classes per position; this dimension is padded
            with -1 or ragged, and may have columns of `exclusions.encoded`.
        features: `[..., dim]`.
        num_classes: Ids must be -1, `ignore_class` or in `[0, num_classes)`.
        ignore_class: An id that becomes -1, or None.

    Raises:
        ValueError: If the labels are not integers, or their static shape does not match the
            features.
        tf.errors.InvalidArgumentError: If their dynamic shape does not match the features, an
            id is out of range, or the labels are multi-hot.
    """
    labels = integer_ids(y_true)
    _check_static_shape(labels, features)
    rank = features.shape.rank - 1
    labels = checks.passed(_shape_checks(labels, features), labels)
    shape = tf.concat([tf.shape(labels), [1]], axis=0)  # a width of 1 where rank is equal
    matrix = tf.reshape(labels, [tf.reduce_prod(shape[:rank]), shape[rank]])
    matrix = tf.ensure_shape(matrix, [None, _static_width(labels, rank)])
    labels, excluded = exclusions.split(matrix)
    id_checks = _multi_hot_checks(matrix, num_classes)
    if excluded is not None:
        id_checks.append(_range_check("`exclude`", excluded, num_classes))
    if ignore_class is not None:
        padding = tf.constant(-1, tf.int64)
        matrix = tf.where(matrix == ignore_class, padding, matrix)
        labels = tf.where(labels == ignore_class, padding, labels)
    return checks.passed([*id_checks, _range_check("Labels", labels, num_classes)], matrix)


def checked_targets(targets: tf.SparseTensor, num_classes: int, kind: str) -> tf.SparseTensor:
    """Returns `targets` with float values, and checks them when a step runs.

    Keras traces a step again with unknown columns if a `fit` gets another number of columns
    than the previous one. So a check of the static shape is not enough.

    Args:
        targets: Numbers `[..., num_classes]`; indices may be unsorted and repeated.
        num_classes: Number of classes.
        kind: What the messages call the targets, such as "Sparse targets".

    Raises:
        tf.errors.InvalidArgumentError: When the step runs, if the number of columns is another,
            an index is out of range, or a value is not finite.
    """
    indices, values, shape = targets.indices, targets.values, targets.dense_shape
    if not values.dtype.is_floating:
        values = tf.cast(values, tf.float32)
    columns = f"{kind} must have one column per class, {num_classes}. Received columns:"
    is_outside = tf.reduce_any((indices < 0) | (indices >= shape), axis=-1)
    outside = tf.boolean_mask(indices, is_outside)
    message = (
        f"The last index of {kind.lower()} must be a class id in [0, {num_classes}), and the "
        "others must be within the shape. Leave out targets of other ids. Received the indices"
    )
    target_checks = [
        checks.require(shape[-1] == num_classes, [columns, shape[-1]]),
        checks.require(tf.size(outside) == 0, [message, outside, "in the shape", shape]),
        checks.finite(values, f"{kind} must be finite"),
    ]
    indices, values = (checks.passed(target_checks, x) for x in (indices, values))
    return tf.SparseTensor(indices, values, shape)


def as_target_matrix(
    targets: tf.SparseTensor, features: tf.Tensor, num_classes: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the classes of soft targets as padded ids, and their weights.

    Args:
        targets: Numbers `[..., num_classes]`, the target probabilities of the classes. It adds
            values with equal indices, and ignores values of 0.
        features: `[..., dim]`.
        num_classes: Number of classes.

    Returns:
        `(ids, weights)`: int64 and float32 `[..., L]`; -1 and 0 at padding.

    Raises:
        ValueError: If the rank or the number of columns is wrong.
        tf.errors.InvalidArgumentError: If the number of columns is wrong and known only when
            the step runs, or an index is out of range. It is also raised if a target is
            negative or not finite, or the targets of an example are all 0 or have a sum above
            1.
    """
    expected = [*features.shape[:-1], num_classes]
    if not targets.shape.is_compatible_with(expected):
        raise ValueError(
            f"Soft targets must have the shape {tf.TensorShape(expected)}, with one column per "
            f"class. Received: a SparseTensor of shape {targets.shape}."
        )
    targets = checked_targets(targets, num_classes, "Soft targets")
    indices, values, shape = targets.indices, targets.values, targets.dense_shape
    values = tf.cast(values, tf.float32)
    negative = [
        "Soft targets must not be negative. Received values from",
        tf.reduce_min(values),
    ]
    values = checks.passed([checks.require(tf.reduce_all(values >= 0), negative)], values)
    matrix = tf.sparse.reshape(
        tf.SparseTensor(indices, values, shape), [tf.reduce_prod(shape[:-1]), num_classes]
    )
    ids, weights = padded_rows(matrix)
    totals = tf.gather(tf.reduce_sum(weights, axis=-1), matrix.indices[:, 0])
    fits = tf.reduce_all((totals > 0) & (totals <= 1 + _ROUNDING))
    message = (
        "The soft targets of an example must have a sum above 0 and of at most 1. Normalize "
        "them; an example without any target does not count. Received sums"
    )
    ids = checks.passed([checks.require(fits, [message, totals])], ids)
    ids = tf.where(weights > 0, ids, -1)
    full = tf.concat([shape[:-1], tf.shape(ids, tf.int64)[1:]], axis=0)
    return tf.reshape(ids, full), tf.reshape(weights, full)


def padded_rows(matrix: tf.SparseTensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns column ids `[rows, n]`, padded with -1, and their values, 0 at padding."""
    num_rows, width = tf.unstack(matrix.dense_shape)
    places, which = tf.unique(matrix.indices[:, 0] * width + matrix.indices[:, 1])
    order = tf.argsort(places)
    values = tf.math.unsorted_segment_sum(matrix.values, which, tf.size(places))
    rows = tf.gather(places, order) // width
    columns = tf.gather(places, order) % width
    ids = tf.RaggedTensor.from_value_rowids(columns, rows, num_rows)
    return ids.to_tensor(-1), ids.with_values(tf.gather(values, order)).to_tensor(0)


def first_occurrences(labels: tf.Tensor) -> tf.Tensor:
    """Returns bool `[B, L]`, True where a label occurs in its example for the first time.

    Padding is False.

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
    if isinstance(y_true, tf.SparseTensor):
        raise ValueError(f"{_FORMS} Received labels of type SparseTensor. {_TARGETS}")
    if y_true is None:
        raise ValueError(
            f"{_FORMS} Received no labels. Pass them as `y`, or a dataset of pairs (x, y)."
        )
    if isinstance(y_true, str):  # Keras passes a key of a dict
        raise ValueError(
            f"{_FORMS} Received the string {y_true!r}. If the labels are in a dict, pass its "
            f"value: y[{y_true!r}]."
        )
    try:
        if isinstance(y_true, tf.RaggedTensor) and y_true.dtype.is_integer:
            y_true = tf.cast(y_true, tf.int64).to_tensor(-1)
        labels = tf.convert_to_tensor(y_true)
    except (TypeError, ValueError) as error:
        kind = type(y_true).__name__
        raise ValueError(f"{_FORMS} Received labels of type {kind}: {error}") from error
    if not labels.dtype.is_integer:
        way_out = _NAMES if labels.dtype == tf.string else _ONE_HOT
        raise ValueError(
            f"{_FORMS} Received labels of dtype {labels.dtype.name} and shape {labels.shape}. "
            f"{way_out}"
        )
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
    return [checks.require(fits, [*message, "for features", tf.shape(features)])]


def _expected_shape(features: tf.Tensor) -> str:
    leading = ", ".join(str(size) for size in features.shape[:-1])
    for_sequences = f" `exclude` of `with_exclude` must have the shape ({leading}, n)."
    return (
        f"For features of shape {features.shape} labels must have the shape "
        f"{features.shape[:-1]} (one class per position) or that and one more dimension "
        f"(several classes, padded with -1).{for_sequences if features.shape.rank > 2 else ''}"
    )


def _static_width(labels: tf.Tensor, rank: int) -> int | None:
    if labels.shape.rank is None:
        return None
    return labels.shape[-1] if labels.shape.rank > rank else 1


def _range_check(kind: str, ids: tf.Tensor, num_classes: int) -> tf.Operation | None:
    lowest, highest = tf.reduce_min(ids), tf.reduce_max(ids)
    in_range = (lowest >= -1) & (highest < num_classes)
    message = f"{kind} must be class ids in [0, {num_classes}), or -1 as padding. "
    if kind == "Labels":
        message += (
            "If another id, such as -100, marks padding, pass ignore_class=-100 to the loss. "
        )
    message += "Received ids"
    return checks.require(in_range, [message, "from", lowest, "to", highest])


def _multi_hot_checks(labels: tf.Tensor, num_classes: int) -> list[tf.Operation | None]:
    """Returns an assertion that labels `[B, L]` are not multi-hot."""
    if num_classes == 1 or labels.shape[1] not in (None, num_classes):
        return []
    lowest, highest = tf.reduce_min(labels), tf.reduce_max(labels)
    zeros_and_ones = (lowest >= 0) & (lowest <= highest) & (highest <= 1)
    is_ids = ~(zeros_and_ones & (tf.shape(labels)[1] == num_classes))
    message = (
        f"Labels must be class ids. Received a matrix of {num_classes} columns, one per class, "
        "of only 0 and 1: multi-hot labels. Pass the ids of the classes that are 1, padded "
        "with -1 or ragged, such as tf.ragged.boolean_mask(tf.range(num_classes) + "
        "tf.zeros_like(y), y > 0). Received labels of shape"
    )
    return [checks.require(is_ids, [message, tf.shape(labels)])]
