"""`Labels`: labels of every accepted form, checked and converted to one matrix of class ids.

Keras passes one tensor of labels to the loss and the metrics of an output. So `with_exclude`
writes the classes that `evaluate` must not rank into the same tensor, as further columns: class
c is `c - 2^62`, far below all values that occur as padding. `as_labels` separates them.
"""

import dataclasses
import functools
from typing import NamedTuple

import tensorflow as tf

from tf_largeout import checks
from tf_largeout.arguments import wrong_exclude
from tf_largeout.classes.filtered_top_k import class_ids
from tf_largeout.ops import devices
from tf_largeout.types import TensorLike

_EXCLUDED = -(2**62)
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
_OTHER_PADDING = (
    "If another id, such as -100, marks padding, pass ignore_class=-100 to the loss. "
)
_NAMES = (
    "For names of classes, pass their ids: keras.layers.StringLookup(vocabulary=class_names, "
    "num_oov_indices=0)(y)."
)


class SelectedRows(NamedTuple):
    """`P` of `B` rows: `places`, int64 `[P]`, rising, and `numbers`, int32 `[B]`.

    `numbers` has 1 plus the index in `places` for a selected row, and 0 for others. `take` and
    `put_back` are gathers, and each is the gradient of the other. TensorFlow's own gradient of
    a gather is sparse, and TensorFlow warns when it converts it to a dense one.
    """

    places: tf.Tensor
    numbers: tf.Tensor

    @classmethod
    def where(cls, is_selected: tf.Tensor) -> "SelectedRows":
        """Returns the rows where `is_selected`, bool `[B]`, is true; row 0 if none is."""
        is_first = tf.range(tf.size(is_selected)) == 0
        is_selected |= is_first & ~tf.reduce_any(is_selected)
        numbers = tf.cumsum(tf.cast(is_selected, tf.int32))
        return cls(tf.where(is_selected)[:, 0], tf.where(is_selected, numbers, 0))

    def take(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the selected rows of `values`, `[B, ...]`, as `[P, ...]`."""
        return tf.custom_gradient(lambda one: (self._gather(one), self._scatter))(values)

    def put_back(self, values: tf.Tensor) -> tf.Tensor:
        """Returns `values`, `[P, ...]`, as `[B, ...]`, with 0 in the rows not selected."""
        return tf.custom_gradient(lambda one: (self._scatter(one), self._gather))(values)

    def _gather(self, values: tf.Tensor) -> tf.Tensor:
        return tf.gather(values, self.places)

    def _scatter(self, values: tf.Tensor) -> tf.Tensor:
        with_zero = tf.pad(values, [[1, 0]] + [[0, 0]] * (values.shape.rank - 1))
        return tf.gather(with_zero, self.numbers)


@dataclasses.dataclass(frozen=True, eq=False)
class Labels:
    """The labels of `B` examples.

    `ids` are int64 `[B, L]`, padded with -1. `weights`, float32 `[B, L]`, are the soft targets
    of the labels, 0 at padding; for None, each has the target `1 / #labels`. `excluded`, int64
    `[B, L]`, are classes that `evaluate` must not rank, -1 where `ids` has a label.
    """

    ids: tf.Tensor
    weights: tf.Tensor | None = None
    excluded: tf.Tensor | None = None

    @functools.cached_property
    def counted(self) -> tf.Tensor:
        """Bool `[B]`: which examples count in means, those with a label."""
        with devices.host_ids_scope():
            return tf.reduce_any(self.ids >= 0, axis=-1)

    def without(self, excluded: tf.Tensor) -> "Labels":
        """Returns the labels with more excluded classes, int64 `[B, n]`, in further columns."""
        padding, weights, known = tf.constant(-1, tf.int64), self.weights, self.excluded
        if known is None:
            known = tf.fill(tf.shape(self.ids), padding)
        if weights is not None:
            weights = tf.concat([weights, tf.zeros(tf.shape(excluded))], axis=1)
        ids = tf.concat([self.ids, tf.fill(tf.shape(excluded), padding)], axis=1)
        return Labels(ids, weights, tf.concat([known, excluded], axis=1))

    def take(self, rows: SelectedRows) -> "Labels":
        """Returns the labels of the selected examples."""
        parts = {
            field.name: rows.take(value)
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) is not None
        }
        return dataclasses.replace(self, **parts)


def as_labels(
    y_true: TensorLike,
    features: tf.Tensor,
    num_classes: int,
    ignore_class: int | None = None,
    takes_soft_targets: bool = False,
) -> Labels:
    """Checks labels, and returns them as `Labels`; `B` is the product of leading dimensions.

    A matrix of only 0 and 1 with `num_classes` columns is an error if there is more than one
    class. It must be multi-hot: as ids, it would give every example all classes, or one class
    repeatedly.

    `y_true` has the shape of the features, `[..., dim]`, without the last dimension, for one
    class per position. A further dimension for several is padded with -1 or ragged, and may
    have columns of `with_exclude`. Or, with `takes_soft_targets`, it has the targets of the
    classes, as a `tf.SparseTensor`; the labels are those above 0. `ignore_class` becomes -1. A
    wrong static shape or dtype raises a ValueError; wrong dynamic shapes, ids out of range and
    multi-hot labels a `tf.errors.InvalidArgumentError`.
    """
    weights, shape = None, tf.shape(features)
    with devices.host_ids_scope():
        if takes_soft_targets and isinstance(y_true, tf.SparseTensor):
            y_true, weights = as_target_matrix(y_true, features, num_classes)
        matrix = _as_matrix(integer_ids(y_true), features, shape)
        ids, excluded = (matrix, None) if matrix.shape[1] == 1 else _split(matrix)
        if ignore_class is not None:
            ids = tf.where(ids == ignore_class, tf.constant(-1, tf.int64), ids)
        ids = checks.passed(_id_checks(matrix, ids, excluded, num_classes), ids)
        if weights is not None:
            weights = tf.where(ids >= 0, tf.reshape(weights, tf.shape(ids)), 0)
    return Labels(ids, weights, excluded)


def excluded_ids(exclude: TensorLike, features: tf.Tensor, num_classes: int) -> tf.Tensor:
    """Returns the argument `exclude` of an output layer, `[batch, ..., n]`, as int64 `[B, n]`.

    Negative ids become -1. The errors are those of `as_labels`.
    """
    ids = class_ids("exclude", exclude)
    if ids.shape.rank != features.shape.rank or not ids.shape[:-1].is_compatible_with(
        features.shape[:-1]
    ):
        raise ValueError(
            f"`exclude` must have a row of class ids for each example, shape "
            f"{(*features.shape[:-1], 'n')}, padded with -1. Received: shape {ids.shape}."
        )
    with devices.host_ids_scope():
        ids = tf.reshape(ids, [-1, tf.shape(ids)[-1]])
        ids = tf.maximum(ids, -1)
        return checks.passed([_in_range("`exclude`", ids, num_classes)], ids)


def with_exclude(labels: TensorLike, exclude: TensorLike) -> tf.Tensor:
    """Returns labels that also name classes that must not be ranked, such as seen items.

    Pass the result as `y` to `evaluate`, or in `validation_data`. All metrics except
    `Perplexity` then rank only the classes that are not excluded for the example. The loss and
    `Perplexity` do not change. An excluded label is never found, as in RecBole and RecTools,
    but still counts as a label. In training, `exclude` has no effect.

    ```python
    test = data.map(lambda x, y, seen: (x, tflo.metrics.with_exclude(y, seen)))
    model.evaluate(test)
    ```

    Keras passes one tensor of labels to all losses and metrics. So each excluded class becomes
    a further column of the labels, with the value `class - 2^62`. Only the losses and metrics
    of this library accept such labels.

    Args:
        labels: Integer class ids, as for the losses: `[...]` or, padded with -1 or ragged,
            `[..., max_labels]`, where `[..., dim]` is the shape of the features.
        exclude: Integer class ids `[..., n]`, padded with -1; they may repeat. Or a different
            number of ids per example: a list of lists or sets, a `tf.RaggedTensor`, or a SciPy
            sparse matrix, which excludes its nonzero columns. For sequences
            `[batch, time, n]`.

    Returns:
        int64 `[..., max_labels + n]`. `evaluate` raises a `tf.errors.InvalidArgumentError` if
        an id is not below the number of classes.

    Raises:
        ValueError: If the ids are not integers, or the shapes do not match.
        tf.errors.InvalidArgumentError: If the shapes do not match, where only the step knows
            them.
    """
    ids = given = integer_ids(labels)
    excluded = class_ids("exclude", exclude)
    if ids.shape.rank is not None and ids.shape.rank + 1 == excluded.shape.rank:
        ids = ids[..., tf.newaxis]
    if (
        excluded.shape.rank in (None, 0, 1)
        or ids.shape.rank != excluded.shape.rank
        or not ids.shape[:-1].is_compatible_with(excluded.shape[:-1])
    ):
        raise wrong_exclude(given.shape, excluded.shape)
    in_range = tf.reduce_all(excluded < -_EXCLUDED)
    message = ["`exclude` must be class ids. Received:", tf.reduce_max(excluded)]
    excluded = checks.passed([checks.require(in_range, message)], excluded)
    columns = tf.where(excluded < 0, tf.constant(-1, tf.int64), excluded + _EXCLUDED)
    return tf.concat([ids, columns], axis=-1)


def checked_targets(targets: tf.SparseTensor, num_classes: int, kind: str) -> tf.SparseTensor:
    """Returns sparse targets `[..., num_classes]` as floats, checked when a step runs.

    Keras traces a step again with unknown columns if a `fit` gets another number of columns
    than the previous one. So a check of the static shape is not enough. Indices may be unsorted
    and repeated. `kind` is what the messages call the targets, such as "Sparse targets".
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
    """Returns the classes of soft targets as padded ids, and their weights, `[..., L]`.

    Values with equal indices are added, and values of 0 ignored. Errors are those of
    `checked_targets`, and for a wrong rank, negative targets, or a sum of 0 or above 1.
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
    lowest = tf.reduce_min(values)
    negative = ["Soft targets must not be negative. Received values from", lowest]
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

    Padding is False. It takes O(L log L) time and O(L) memory per example.
    """
    with devices.host_ids_scope():
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


def _as_matrix(labels: tf.Tensor, features: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
    """Returns labels as int64 `[B, L]`, with as many rows as the features have positions.

    `sizes` is `tf.shape(features)`.
    """
    rank, width = features.shape.rank - 1, None
    if labels.shape.rank is not None:
        several = labels.shape.rank == features.shape.rank
        leading = labels.shape[:-1] if several else labels.shape
        if not leading.is_compatible_with(features.shape[:-1]):
            raise ValueError(
                f"{_expected_shape(features)} Received labels of shape {labels.shape}."
            )
        width = labels.shape[-1] if several else 1
    known = labels.shape.rank is not None and labels.shape[:rank].is_fully_defined()
    if not (known and features.shape[:-1].is_fully_defined()):
        shape, expected = tf.shape(labels), sizes[:-1]
        padded = tf.concat([shape, tf.fill([rank], -1)], axis=0)[:rank]
        fits = tf.reduce_all(padded == expected) & (tf.size(shape) <= rank + 1)
        message = [_expected_shape(features), "Received labels of shape", shape]
        message += ["for features", sizes]
        labels = checks.passed([checks.require(fits, message)], labels)
    shape = tf.concat([tf.shape(labels), [1]], axis=0)  # a width of 1 where rank is equal
    matrix = tf.reshape(labels, [tf.reduce_prod(shape[:rank]), shape[rank]])
    return tf.ensure_shape(matrix, [None, width])


def _split(columns: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Splits `[B, W]` into labels and classes of `with_exclude`, -1 where the other is."""
    padding = tf.constant(-1, tf.int64)
    is_excluded = (columns >= _EXCLUDED) & (columns < _EXCLUDED // 2)
    return (
        tf.where(is_excluded, padding, columns),
        tf.where(is_excluded, columns - _EXCLUDED, padding),
    )


def _expected_shape(features: tf.Tensor) -> str:
    leading = ", ".join(str(size) for size in features.shape[:-1])
    for_sequences = f" `exclude` of `with_exclude` must have the shape ({leading}, n)."
    return (
        f"For features of shape {features.shape} labels must have the shape "
        f"{features.shape[:-1]} (one class per position) or that and one more dimension "
        f"(several classes, padded with -1).{for_sequences if features.shape.rank > 2 else ''}"
    )


def _id_checks(
    matrix: tf.Tensor, labels: tf.Tensor, excluded: tf.Tensor | None, num_classes: int
) -> list[tf.Operation | None]:
    """Returns assertions that ids are in range, and that a label matrix is not multi-hot."""
    found = [_in_range("Labels", labels, num_classes, _OTHER_PADDING)]
    if excluded is not None:
        found.append(_in_range("`exclude`", excluded, num_classes))
    if num_classes == 1 or matrix.shape[1] not in (None, num_classes):
        return found
    lowest, highest = tf.reduce_min(matrix), tf.reduce_max(matrix)
    zeros_and_ones = (lowest >= 0) & (lowest <= highest) & (highest <= 1)
    is_ids = ~(zeros_and_ones & (tf.shape(matrix)[1] == num_classes))
    message = (
        f"Labels must be class ids. Received a matrix of {num_classes} columns, one per class, "
        "of only 0 and 1: multi-hot labels. Pass the ids of the classes that are 1, padded "
        "with -1 or ragged, such as tf.ragged.boolean_mask(tf.range(num_classes) + "
        "tf.zeros_like(y), y > 0). Received labels of shape"
    )
    return [checks.require(is_ids, [message, tf.shape(matrix)]), *found]


def _in_range(
    kind: str, ids: tf.Tensor, num_classes: int, advice: str = ""
) -> tf.Operation | None:
    lowest, highest = tf.reduce_min(ids), tf.reduce_max(ids)
    in_range = (lowest >= -1) & (highest < num_classes)
    message = f"{kind} must be class ids in [0, {num_classes}), or -1 as padding. {advice}"
    return checks.require(in_range, [f"{message}Received ids from", lowest, "to", highest])


def per_example(
    weights: TensorLike, features: tf.Tensor, dtype: tf.DType | str = "float32"
) -> tf.Tensor:
    """Broadcasts numbers or bools to the leading dimensions `[batch, ...]` of `features`.

    It aligns the first dimensions, as `sample_weight` requires: weights `[batch]` of sequences
    `[batch, time, dim]` apply to whole sequences. (Keras's own losses align the last ones.)
    Dimensions of 1 are repeated, and one more dimension of 1 may follow. Other shapes, and
    strings, raise a ValueError.
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
