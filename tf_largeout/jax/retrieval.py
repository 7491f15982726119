"""The exact best classes, of features or of the inputs of a model, on JAX."""

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from tf_largeout.arguments import one_of, padded_ids, require_width, whole_number
from tf_largeout.jax import blocks
from tf_largeout.jax.steps import Head, tag_of
from tf_largeout.layer_arguments import checked_k, wrong_features

Best = tuple[jax.Array, jax.Array]
_search = jax.jit(blocks.top_k, static_argnums=(3, 4))


def predict_top_k(
    model: keras.Model,
    x: Any,
    k: int,
    exclude: Any = None,
    allowed: Any = None,
    index: None = None,
    batch_size: int | None = None,
    verbose: str | int = "auto",
    positions: str | None = None,
    scores: str = "logit",
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the `k` best classes of each example, without a `[batch, num_classes]` array.

    Arguments and results are those on TensorFlow, but `index` must be None, and `scores` must
    be "logit". The model must be built. Each call traces it again. For a few examples at a
    time, call `top_k` of the layer.

    Returns `(scores, ids)`: NumPy float32 and int64 `[examples, k]`, or `[examples, time, k]`
    for all positions of sequences. If fewer than k classes are left, or a sequence has no
    position for `positions="last"`, they are padded with -inf and -1.
    """
    if not isinstance(model, keras.Model):
        raise ValueError(f"`predict_top_k` needs a keras.Model. Received: model={model!r}.")
    if index is not None or scores != "logit":
        raise ValueError(
            "`index`, and other `scores` than 'logit', need Keras's TensorFlow backend. On "
            "JAX, the search is exact, and returns logits. Omit them. Received: "
            f"index={index!r}, scores={scores!r}."
        )
    size = whole_number("batch_size", batch_size, or_none=True) or 32
    k = whole_number("k", k)
    if positions is not None:
        one_of("positions", positions, ["last"])
    ids_to_exclude = None if exclude is None else _exclusions(exclude)

    @jax.jit
    def find(trainable: Any, other: Any, inputs: Any, excluded: Any) -> Best:
        logits, _ = model.stateless_call(trainable, other, inputs, training=False)
        tag = tag_of(keras.tree.flatten(logits)[0], "`predict_top_k`")
        if tag is None or len(keras.tree.flatten(logits)) != 1:
            raise ValueError(
                "`predict_top_k` needs a model with one output, from a LargeOutput. Received: "
                f"model '{model.name}'. Make a model of one output: keras.Model(model.inputs, "
                "model.outputs[0])."
            )
        if exclude is not None:
            _check_exclusions(exclude, ids_to_exclude, tag.head.num_classes)
        if positions is None:
            return _best(tag.head, tag.features, k, excluded, allowed)
        features, has_position = _last_positions(tag.features, tag.mask)
        scores, ids = _best(tag.head, features, k, excluded, allowed)
        return jnp.where(has_position, scores, -jnp.inf), jnp.where(has_position, ids, -1)

    if not model.built:
        raise ValueError(
            f"Model '{model.name}' is not built yet. Call it on data, or add a keras.Input."
        )
    variables = model.trainable_variables, model.non_trainable_variables
    weights = [[v.value for v in part] for part in variables]
    found = []
    for inputs, rows in _batches(x, ids_to_exclude, size, verbose):
        found.append(jax.tree.map(np.asarray, find(*weights, inputs, rows)))
    if not found:
        raise ValueError("`x` must have at least one batch. Received: an empty iterable.")
    best, ids = _checked(*(np.concatenate(part) for part in zip(*found, strict=True)))
    return best, ids.astype(np.int64)


def _batches(x: Any, excluded: Any, size: int, verbose: Any) -> Iterator[tuple[Any, Any]]:
    """Returns batches of inputs and of rows of exclusions, and shows the progress."""
    arrays, number, batches = keras.tree.flatten(x), None, x
    if all(hasattr(one, "shape") for one in arrays):
        number = min(len(one) for one in arrays)
        if number < max(len(one) for one in arrays):
            shapes = [tuple(one.shape) for one in arrays]
            raise ValueError(f"Arrays in `x` must have equal lengths. Received: {shapes}.")
        firsts = range(0, max(number, 1), size)
        batches = (keras.tree.map_structure(lambda a, i=i: a[i : i + size], x) for i in firsts)
    elif not hasattr(x, "__iter__"):  # a keras.utils.PyDataset
        batches = (x[place] for place in range(len(x)))
    if excluded is not None and number != len(excluded):
        raise ValueError(
            "`exclude` requires arrays as `x`, and a list of ids for each example. Received: "
            f"`exclude` of shape {excluded.shape} for x={type(x).__name__} of shapes "
            f"{[getattr(one, 'shape', None) for one in arrays]}."
        )
    steps = None if number is None else max(1, -(-number // size))
    bar = keras.utils.Progbar(steps) if verbose else None
    for place, batch in enumerate(batches):
        if number is None:
            batch, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
        rows = None if excluded is None else excluded[place * size : (place + 1) * size]
        yield keras.tree.map_structure(np.asarray, batch), rows
        if bar is not None:
            bar.update(place + 1)


def exact_top_k(
    head: Head, features: Any, k: int, exclude: Any = None, allowed: Any = None
) -> Best:
    """Implements `LargeOutput.top_k`: float32 and int32 `[..., k]`, best first.

    Features are `[..., dim]`, `exclude` is `[..., n]`, padded with -1, and `allowed` `[m]`. Of
    equal logits, the lower id comes first. The result is padded with -inf and -1. Wrong
    arguments, and features that are not finite, raise a ValueError; in a compiled function,
    such features give NaN and -1 instead, and ids of `exclude` out of range have no effect.
    """
    k = checked_k(k, head.num_classes)
    features, dim = jnp.asarray(features), head.table.value.shape[1]
    if features.ndim == 0 or features.shape[-1] != dim:
        raise wrong_features(head.name, dim, features.shape)
    if exclude is not None and not isinstance(exclude, jax.Array):
        ids = _exclusions(exclude)
        _check_exclusions(exclude, ids, head.num_classes)
        exclude = ids
    return _checked(*_best(head, features, k, exclude, allowed))


def _best(head: Head, features: jax.Array, k: int, exclude: Any, allowed: Any) -> Best:
    leading, classes = features.shape[:-1], None
    if exclude is not None:
        if exclude.shape[:-1] != leading:
            raise ValueError(
                "`exclude` must have a row of class ids for each query, padded with -1: shape "
                f"{(*leading, 'n')}. Received: shape {exclude.shape}. For only the last "
                "position of sequences, pass positions='last' to `predict_top_k`. To exclude "
                "classes of all queries, pass the others as `allowed`."
            )
        rows = math.prod(leading), exclude.shape[-1]
        exclude = jnp.asarray(exclude, jnp.int32).reshape(rows) if exclude.size else None
    if allowed is not None:
        ids = padded_ids("allowed", allowed)
        if ids.ndim != 1:
            raise ValueError(
                "`allowed` must be a vector of class ids, [m], which all queries share. "
                f"Received: shape {ids.shape}. To filter each query differently, use `exclude`."
            )
        _check_range("allowed", ids, 0, head.num_classes)
        classes = jnp.asarray(np.unique(ids), jnp.int32)
    queries = head.form.queries(features.reshape(-1, features.shape[-1]))
    scores, ids = _search(queries, *head.classes, k, exclude, classes)
    is_finite = jnp.isfinite(queries).all(axis=1, keepdims=True)
    scores, ids = jnp.where(is_finite, scores, jnp.nan), jnp.where(is_finite, ids, -1)
    return scores.reshape(*leading, k), ids.reshape(*leading, k)


def _exclusions(exclude: Any) -> np.ndarray:
    """Returns `exclude` as an array of ids, with -1 as padding."""
    return np.maximum(padded_ids("exclude", exclude), -1)


def _check_exclusions(exclude: Any, ids: Any, num_classes: int) -> None:
    """Raises a ValueError unless the ids of `exclude` are classes or padding."""
    require_width(exclude, num_classes)
    _check_range("exclude", ids, -1, num_classes)


def _check_range(name: str, ids: np.ndarray, least: int, num_classes: int) -> None:
    if ids.size and not (least <= ids.min() and ids.max() < num_classes):
        raise ValueError(
            f"`{name}` must be class ids in [0, {num_classes})"
            f"{', or -1 as padding' if least else ''}. Received ids from {ids.min()} to "
            f"{ids.max()}."
        )


def _checked(scores: Any, ids: Any) -> Any:
    if not isinstance(scores, jax.core.Tracer) and not (scores < np.inf).all():
        raise ValueError(
            "The features must be finite, and logits must not overflow: the best logits of an "
            "example are NaN or infinite. Scale the features down."
        )
    return scores, ids


def _last_positions(features: jax.Array, mask: Any) -> Best:
    """Returns the features at the last unmasked positions, and whether there is one."""
    if features.ndim != 3:
        raise ValueError(
            "`positions='last'` needs a model of sequences, with features [batch, time, dim] "
            f"before its output layer. Received: features of shape {features.shape}. Omit "
            "`positions`."
        )
    mask = jnp.ones(features.shape[:2], bool) if mask is None else mask
    last = jnp.where(mask, jnp.arange(features.shape[1]), 0).max(axis=1)
    rows = jnp.take_along_axis(features, last[:, None, None], axis=1)[:, 0]
    return rows, mask.any(axis=1, keepdims=True)
