"""The exact best classes among those that filters leave.

Two filters: `exclude`, classes of each row's own that must not be in its answer, and `allowed`,
the classes that may be in any.
"""

import itertools
from typing import Any

import numpy as np
import tensorflow as tf

from tf_largeout.classes.class_matrix import ClassMatrix
from tf_largeout.types import TensorLike

_ROWS = (list, tuple, set, frozenset, np.ndarray)


def exact_top_k(
    matrix: ClassMatrix,
    queries: TensorLike,
    k: int,
    exclude: TensorLike | None = None,
    allowed: TensorLike | None = None,
    absolute: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The `k` classes with the highest scores of those that are left, exactly.

    Of equal scores the lower id comes first. With `exclude` this is the top `k + n` of all
    classes, from which it is struck out: at most `n` of them are. With `allowed` only those are
    scored, in blocks.

    Args:
        matrix: Gives the scores.
        queries: float32 `[..., dim]`.
        k: At least 1.
        exclude: Integer ids `[..., n]`, as `exclusions` takes them; or None.
        allowed: Integer ids `[m]`, as `allowances` takes them; or None for all classes.
        absolute: Whether the highest `|score|` are meant, which are the scores then.

    Returns:
        `(scores, ids)`: float32 and int64 `[..., k]`, best first, padded with -inf and -1 where
        fewer than `k` classes are left.

    Raises:
        ValueError: If a filter has another shape or no integers, or `absolute` is true of a
            matrix of log-probabilities.
        tf.errors.InvalidArgumentError: If a filter names a class that there is not, or the
            features are not finite.
    """
    queries = tf.convert_to_tensor(queries)
    rows = tf.reshape(queries, [-1, matrix.dim])
    count = k
    if exclude is not None:
        exclude = exclusions(exclude, queries, matrix.num_classes)
        count += tf.shape(exclude)[1]
    if allowed is None:
        scores, ids = matrix.top_k(rows, tf.minimum(count, matrix.num_classes), absolute)
    else:
        classes = allowances(allowed, matrix.num_classes)
        count = tf.minimum(count, tf.size(classes))
        scores, ids = matrix.top_k_of(rows, classes, count, absolute)
    scores, ids = best_left(scores, ids, exclude, k)
    shape = tf.concat([tf.shape(queries)[:-1], [k]], axis=0)
    return tf.reshape(scores, shape), tf.reshape(ids, shape)


def best_left(
    scores: tf.Tensor, ids: tf.Tensor, exclude: tf.Tensor | None, k: int | tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The first `k` of what is left of answers, without those that are excluded.

    Args:
        scores: float32 `[B, m]`, best first.
        ids: int64 `[B, m]`, their classes; -1 where there is none, last.
        exclude: int64 `[B, n]`, where negative ids exclude nothing; or None.
        k: At least 1.

    Returns:
        `(scores, ids)`: float32 and int64 `[B, k]`, in the order they came in, padded with -inf
        and -1.
    """
    padding = [[0, 0], [0, k]]
    scores = tf.pad(scores, padding, constant_values=-float("inf"))
    ids = tf.pad(ids, padding, constant_values=-1)
    if exclude is None:
        return scores[:, :k], ids[:, :k]
    width = tf.shape(ids)[1]
    order = tf.where(_are_among(ids, exclude), width, tf.range(width))
    places = -tf.math.top_k(-order, k).values  # never `width`: the padding is not struck out
    return tf.gather(scores, places, batch_dims=1), tf.gather(ids, places, batch_dims=1)


def exclusions(exclude: TensorLike, queries: tf.Tensor, num_classes: int) -> tf.Tensor:
    """The argument `exclude`, checked, as int64 `[B, n]`, B being the product of leading axes.

    Args:
        exclude: Integer ids `[..., n]` of classes, for queries `[..., dim]`: negative ones are
            padding, and an id may be there twice. Or another form of `class_rows`.
        queries: Those that they belong to.
        num_classes: Ids are below it.

    Raises:
        ValueError: If they are no integers, or their shape does not fit that of the queries.
        tf.errors.InvalidArgumentError: If it does not where only the step knows, or an id is
            too high.
    """
    ids = class_ids("exclude", exclude)
    leading = queries.shape[:-1]
    expected = f"`exclude` must have shape [{', '.join(map(str, leading))}, n], with "
    expected += "a row of class ids for each query, padded with -1."
    if ids.shape.rank != queries.shape.rank or not ids.shape[:-1].is_compatible_with(leading):
        raise ValueError(
            f"{expected} Received `exclude` of shape {ids.shape} for queries of shape "
            f"{queries.shape}. For classes that no query may find pass the others as `allowed`."
        )
    shape = tf.shape(ids)
    fits = tf.reduce_all(shape[:-1] == tf.shape(queries)[:-1])
    received = [expected, "Received shape", shape, "for queries", tf.shape(queries)]
    in_range = _all_below(ids, num_classes)
    with tf.control_dependencies(
        [
            tf.debugging.Assert(fits, received),
            tf.debugging.Assert(in_range, _out_of_range("exclude", ids, num_classes)),
        ]
    ):
        return tf.reshape(ids, [tf.reduce_prod(shape[:-1]), shape[-1]])


def allowances(allowed: TensorLike, num_classes: int) -> tf.Tensor:
    """The argument `allowed`, checked, as int64 `[m]`: rising ids, each once.

    Args:
        allowed: Integer ids `[m]` of classes, or a set; one may be there twice.
        num_classes: Ids are in `[0, num_classes)`.

    Raises:
        ValueError: If they are no integers or no vector.
        tf.errors.InvalidArgumentError: If an id is out of range.
    """
    ids = class_ids("allowed", allowed)
    if ids.shape.rank != 1:
        raise ValueError(
            "`allowed` must be a vector of class ids, [m], which all queries share. Received "
            f"`allowed` of shape {ids.shape}. For classes of each query's own take `exclude`."
        )
    in_range = _all_below(ids, num_classes) & tf.reduce_all(ids >= 0)
    message = _out_of_range("allowed", ids, num_classes)
    with tf.control_dependencies([tf.debugging.Assert(in_range, message)]):
        return tf.unique(tf.sort(ids)).y


def class_ids(name: str, value: TensorLike) -> tf.Tensor:
    """A filter as an int64 tensor; rows of different lengths are padded with -1.

    Args:
        name: "exclude" or "allowed", for the message.
        value: As `class_rows` takes it.

    Raises:
        ValueError: If the ids are not integers, or not in such a form.
    """
    ids = class_rows(name, value)
    return ids.to_tensor(-1) if isinstance(ids, tf.RaggedTensor) else ids


def class_rows(name: str, value: TensorLike) -> tf.Tensor | tf.RaggedTensor:
    """A filter as int64, ragged if its rows can have different lengths.

    Args:
        name: "exclude" or "allowed", for the message.
        value: Integers: a tensor, also a ragged one, an array, a list or a set; a list of
            lists or sets; a sparse matrix of SciPy, whose rows have the ids of the columns
            that are not 0. What is empty may have any type.

    Raises:
        ValueError: If the ids are not integers, or not in such a form.
    """
    value = _without_sets(value)
    if isinstance(value, tf.RaggedTensor):
        return value.with_flat_values(class_rows(name, value.flat_values))
    try:
        ids = tf.convert_to_tensor(value)
    except ValueError as error:
        raise ValueError(
            f"`{name}` must be integer class ids: a tensor or array, its rows padded with -1 "
            "to one length, a list of lists or sets, a tf.RaggedTensor or a sparse matrix of "
            f"SciPy. Received {name} of type {type(value).__name__}: {error}"
        ) from error
    if not ids.dtype.is_integer and ids.shape.num_elements() != 0:
        raise ValueError(
            f"`{name}` must be integer class ids. Received {name} of dtype {ids.dtype.name}, "
            f"of shape {ids.shape}. For a mask over all classes pass the places where it is "
            "true: numpy.flatnonzero(mask)."
        )
    if ids.dtype != tf.uint64:
        return tf.cast(ids, tf.int64)
    ids = tf.bitcast(ids, tf.int64)  # ids from 2**63 on become negative, as padding is
    return tf.where(ids < 0, tf.int64.max, ids)


def _without_sets(value: Any) -> Any:
    """`value`, or what TensorFlow takes in place of sets, uneven lists and sparse matrices."""
    if isinstance(value, set | frozenset):
        return list(value)
    if hasattr(value, "tocsr"):
        matrix = value.tocsr()
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        is_there = matrix.data != 0
        ids = matrix.indices[is_there].astype(np.int64)
        return tf.RaggedTensor.from_value_rowids(ids, rows[is_there], matrix.shape[0])
    if str(getattr(value, "dtype", "")) == "object":  # lists in a column of pandas
        value = list(value)
    if not isinstance(value, list | tuple) or not all(isinstance(row, _ROWS) for row in value):
        return value
    lengths = [len(row) for row in value]
    if len(set(lengths)) < 2 and not any(isinstance(row, set | frozenset) for row in value):
        return value
    ids = list(itertools.chain.from_iterable(value))
    if any(isinstance(one, _ROWS) for one in ids):
        return value
    ids = np.array(ids, None if ids else int)
    return tf.RaggedTensor.from_row_lengths(ids, lengths) if ids.dtype.kind in "iu" else value


def _all_below(ids: tf.Tensor, num_classes: int) -> tf.Tensor:
    return tf.reduce_all(ids < num_classes)


def _out_of_range(name: str, ids: tf.Tensor, num_classes: int) -> list[str | tf.Tensor]:
    padding = ", or -1 as padding" if name == "exclude" else ""
    lowest, highest = tf.reduce_min(ids), tf.reduce_max(ids)
    message = f"`{name}` must be class ids in [0, {num_classes}){padding}. Received ids from"
    return [message, lowest, "to", highest]


def _are_among(ids: tf.Tensor, exclude: tf.Tensor) -> tf.Tensor:
    """Which `ids`, `[B, m]`, are in the same row of `exclude`, `[B, n]`; negative ones are not.

    By a search in sorted rows: `[B, m, n]` comparisons would not fit for long histories.
    """
    lowest = tf.pad(exclude, [[0, 0], [1, 0]], constant_values=exclude.dtype.min)
    ordered = tf.sort(lowest, axis=1)
    places = tf.searchsorted(ordered, ids, side="right") - 1
    return (ids >= 0) & (tf.gather(ordered, places, batch_dims=1) == ids)
