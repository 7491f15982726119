"""The exact best classes that two filters leave.

`exclude` has, for each query, the classes that must not be in its results. `allowed` has the
only classes that may be in the results of all queries.
"""

import functools

import tensorflow as tf

from tf_largeout import checks
from tf_largeout.arguments import RowsOfIds, require_width, rows_of_ids
from tf_largeout.classes.best_scores import search_without
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.types import TensorLike


def exact_top_k(
    scorer: ClassScorer,
    queries: TensorLike,
    k: int,
    exclude: TensorLike | None = None,
    allowed: TensorLike | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the `k` classes with the highest scores that the filters leave, exactly.

    Lower ids win ties. With `allowed` it scores only those classes, in blocks. For queries
    `[..., dim]`, the scores and ids are `[..., k]`, best first, padded with -inf and -1. The
    errors are those of `exclusions` and `allowances`, and one for features that are not finite.
    """
    queries = tf.convert_to_tensor(queries)
    flat, num_classes = tf.reshape(queries, [-1, scorer.dim]), scorer.num_classes
    if exclude is not None:
        exclude = exclusions(exclude, queries, num_classes)
    search, most = functools.partial(scorer.top_k, flat), num_classes
    if allowed is not None:
        classes = allowances(allowed, num_classes)
        search, most = functools.partial(scorer.top_k_of, flat, classes), tf.size(classes)
    scores, ids = search_without(search, most, exclude, k)
    shape = tf.concat([tf.shape(queries)[:-1], [k]], axis=0)
    return tf.reshape(scores, shape), tf.reshape(ids, shape)


def exclusions(exclude: TensorLike, queries: tf.Tensor, num_classes: int) -> tf.Tensor:
    """Checks the argument `exclude` and returns it as int64 `[B, n]`, with negative padding.

    B is the product of the leading dimensions of the queries. A wrong dtype or static shape is
    a ValueError. A wrong dynamic shape or id is a `tf.errors.InvalidArgumentError`.
    """
    require_width(exclude, num_classes)
    ids = class_ids("exclude", exclude)
    leading = queries.shape[:-1]
    expected = f"`exclude` must have shape [{', '.join(map(str, leading))}, n], with "
    expected += "class ids for each query, padded with -1."
    if ids.shape.rank != queries.shape.rank or not ids.shape[:-1].is_compatible_with(leading):
        raise ValueError(
            f"{expected} Received `exclude` of shape {ids.shape} for queries of shape "
            f"{queries.shape}. To exclude classes of all queries, pass the others as `allowed`."
        )
    shape = tf.shape(ids)
    fits = tf.reduce_all(shape[:-1] == tf.shape(queries)[:-1])
    received = [expected, "Received shape", shape, "for queries", tf.shape(queries)]
    in_range = tf.reduce_all(ids < num_classes)
    id_checks = [
        checks.require(fits, received),
        checks.require(in_range, _out_of_range("exclude", ids, num_classes)),
    ]
    return tf.reshape(checks.passed(id_checks, ids), [tf.reduce_prod(shape[:-1]), shape[-1]])


def allowances(allowed: TensorLike, num_classes: int) -> tf.Tensor:
    """Checks the argument `allowed` as `exclusions` does; returns rising int64 `[m]`."""
    ids = class_ids("allowed", allowed)
    if ids.shape.rank != 1:
        raise ValueError(
            "`allowed` must be a vector of class ids, [m], which all queries share. Received "
            f"`allowed` of shape {ids.shape}. To filter each query differently, use `exclude`."
        )
    in_range = tf.reduce_all((ids >= 0) & (ids < num_classes))
    message = _out_of_range("allowed", ids, num_classes)
    ids = checks.passed([checks.require(in_range, message)], ids)
    return tf.unique(tf.sort(ids)).y


def class_ids(name: str, value: TensorLike) -> tf.Tensor:
    """Returns a filter as an int64 tensor; lists of different lengths are padded with -1."""
    ids = ragged_class_ids(name, value)
    return ids.to_tensor(-1) if isinstance(ids, tf.RaggedTensor) else ids


def ragged_class_ids(name: str, value: TensorLike) -> tf.Tensor | tf.RaggedTensor:
    """Returns a filter as int64; as a ragged tensor if its lists can have different lengths.

    An empty value may have any type. Other values without integers raise a ValueError.
    """
    value = rows_of_ids(value)
    if isinstance(value, RowsOfIds):
        value = tf.RaggedTensor.from_row_lengths(*value)
    if isinstance(value, tf.RaggedTensor):
        return value.with_flat_values(ragged_class_ids(name, value.flat_values))
    try:
        ids = tf.convert_to_tensor(value)
    except ValueError as error:
        raise ValueError(
            f"`{name}` must be integer class ids: a tensor or array, padded with -1 to one "
            "length, a list of lists or sets, a tf.RaggedTensor or a SciPy sparse matrix. "
            f"Received {name} of type {type(value).__name__}: {error}"
        ) from error
    if not ids.dtype.is_integer and ids.shape.num_elements() != 0:
        raise ValueError(
            f"`{name}` must be integer class ids. Received {name} of dtype {ids.dtype.name}, "
            f"of shape {ids.shape}. {_ids_of_mask(ids)}"
        )
    if ids.dtype != tf.uint64:
        return tf.cast(ids, tf.int64)
    ids = tf.bitcast(ids, tf.int64)  # ids from 2**63 on become negative, like padding
    return tf.where(ids < 0, tf.int64.max, ids)


def _ids_of_mask(mask: tf.Tensor) -> str:
    """Returns a hint how to convert a mask over all classes, per query or not, to ids."""
    if mask.shape.rank == 1:
        return "For a mask over all classes, pass the ids: numpy.flatnonzero(mask)."
    return (
        "For a mask with a row per query, pass a list of the ids of each query, which need not "
        "have the same length: [numpy.flatnonzero(row) for row in mask]."
    )


def _out_of_range(name: str, ids: tf.Tensor, num_classes: int) -> list[str | tf.Tensor]:
    padding = ", or -1 as padding" if name == "exclude" else ""
    lowest, highest = tf.reduce_min(ids), tf.reduce_max(ids)
    message = f"`{name}` must be class ids in [0, {num_classes}){padding}. Received ids from"
    return [message, lowest, "to", highest]


def as_float32(name: str, value: TensorLike, shape: str) -> tf.Tensor:
    """Returns an argument as float32; the message of its ValueError has `name` and `shape`."""
    try:
        array = tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{name}` must be an array of numbers, {shape}. Received: a value of type "
            f"{type(value).__name__}: {error}"
        ) from error
    if array.dtype.is_floating or array.dtype.is_integer or array.dtype.is_bool:
        return tf.cast(array, tf.float32)
    raise ValueError(
        f"`{name}` must be an array of numbers, {shape}. Received: dtype {array.dtype.name}, "
        f"of shape {array.shape}."
    )
