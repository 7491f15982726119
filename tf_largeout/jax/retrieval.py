"""The exact best classes, of features or of the inputs of a model, on JAX."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from tf_largeout.arguments import is_whole, one_of, padded_ids, whole_number
from tf_largeout.jax import blocks
from tf_largeout.jax.steps import Head, tag_of

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
    """Returns the `k` best classes of each example, by the loop of Keras's `predict`.

    It never stores a `[batch, num_classes]` array. Each call traces the model again. So if you
    have only a few examples at a time, call `top_k` of the layer instead.

    Args:
        model: A model whose output is that of a `LargeOutput`.
        x: As in `model.predict`; labels and weights are ignored.
        k: Number of classes, at least 1. It may be larger than the number of classes.
        exclude: Ids `[examples, n]` of classes that must not be in the result of the example,
            padded with -1; or a list of lists or sets, or a SciPy sparse matrix. For results at
            all positions of sequences `[examples, time, n]`. It requires arrays as `x`.
        allowed: Ids `[m]`, or a set, of the only classes that may be in any result.
        index: Must be None: an index needs the TensorFlow backend.
        batch_size: Batch size for arrays; 32 by default, as in Keras.
        verbose: As in `predict`.
        positions: "last" returns one result per sequence, for the last position that is not
            masked: -inf and -1 if there is none. None returns a result for each position.
        scores: Must be "logit".

    Returns:
        `(scores, ids)`: NumPy float32 and int64 `[examples, k]`, or `[examples, time, k]`; best
        first, padded with -inf and -1 if fewer than `k` classes are left.

    Raises:
        ValueError: If an argument is wrong or not supported on JAX, or features are not finite.
    """
    if not isinstance(model, keras.Model):
        raise ValueError(f"`predict_top_k` needs a keras.Model. Received: model={model!r}.")
    if index is not None or scores != "logit":
        raise ValueError(
            "`index`, and other `scores` than 'logit', need Keras's TensorFlow backend. On "
            "JAX, the search is exact, and returns logits. Omit them. Received: "
            f"index={index!r}, scores={scores!r}."
        )
    whole_number("batch_size", batch_size, or_none=True)
    if positions is not None:
        one_of("positions", positions, ["last"])
    arrays = keras.tree.flatten(x)
    check = None
    if exclude is not None:
        check, ids = functools.partial(_exclusions, exclude), _exclusions(exclude)
        if any(getattr(one, "shape", (None,))[:1] != ids.shape[:1] for one in arrays):
            raise ValueError(
                "`exclude` requires arrays as `x`, and a list of ids for each example. "
                f"Received: `exclude` of shape {ids.shape} for x={type(x).__name__} of shapes "
                f"{[getattr(one, 'shape', None) for one in arrays]}."
            )
        x = {"x": x, "exclude": ids}
    if allowed is not None:
        allowed = padded_ids("allowed", allowed)
    finder = _Finder(model, whole_number("k", k), check, allowed, positions)
    if all(getattr(one, "shape", (1,))[:1] == (0,) for one in arrays):
        found = finder.predict_on_batch(x)  # Keras's loop would return no arrays
    else:
        found = finder.predict_safely(x, batch_size, verbose)
    best, ids = _checked(*found)
    return best, ids.astype(np.int64)


class _Finder(keras.Model):
    """Wraps `model`, so that `predict` returns the best classes."""

    def __init__(
        self, model: keras.Model, k: int, check_exclude: Any, allowed: Any, positions: Any
    ) -> None:
        super().__init__()
        self._model, self._k, self._check_exclude = model, k, check_exclude
        self._allowed, self._positions = allowed, positions
        self.run_eagerly, self.built = model.run_eagerly, True

    def predict_safely(self, x: Any, batch_size: int | None, verbose: str | int) -> Best:
        """Calls `predict`. If it raises an error, the model keeps its variables.

        Keras's loop takes the values out of the variables, and loses them if a step fails.
        """
        values = [(one, one.value) for one in self.variables]
        try:
            return self.predict(x, batch_size=batch_size, verbose=verbose)
        except BaseException:
            if getattr(self, "_jax_state", None):
                self.jax_state_sync()
            else:
                for variable, value in values:
                    variable.assign(value)
            raise

    def call(self, inputs: Any) -> Best:
        exclude = None
        if self._check_exclude is not None:
            inputs, exclude = inputs["x"], inputs["exclude"]
        logits = self._model(inputs, training=False)
        if len(keras.tree.flatten(logits)) != 1:
            raise ValueError(
                "`predict_top_k` needs a model with one output, from a LargeOutput. Received: "
                f"model '{self._model.name}' with several outputs. Make a model of one of them:"
                " keras.Model(model.inputs, model.outputs[0])."
            )
        tag = tag_of(logits, "`predict_top_k`")
        if tag is None:
            raise ValueError(
                f"Model '{self._model.name}' is not built yet. Call it on data, or add a "
                "keras.Input."
            )
        if exclude is not None:
            self._check_exclude(tag.head.num_classes)
        features, has_position = tag.features, None
        if self._positions is not None:
            features, has_position = _last_positions(features, tag.mask)
        scores, ids = _best(tag.head, features, self._k, exclude, self._allowed)
        if has_position is None:
            return scores, ids
        has_position = has_position[:, None]
        return jnp.where(has_position, scores, -jnp.inf), jnp.where(has_position, ids, -1)


def exact_top_k(
    head: Head, features: Any, k: int, exclude: Any = None, allowed: Any = None
) -> Best:
    """Implements `LargeOutput.top_k`: float32 and int32 `[..., k]` for features `[..., dim]`.

    Of equal logits, the lower id comes first. The result is padded with -inf and -1. Wrong
    arguments, and features that are not finite, raise a ValueError; in a compiled function,
    such features give NaN and -1 instead, and ids of `exclude` out of range have no effect.
    """
    if not (is_whole(k) and k >= 1):
        raise ValueError(
            "`k` must be an integer of at least 1, usually between 1 and "
            f"num_classes={head.num_classes}. Received: k={k!r}."
        )
    features, dim = jnp.asarray(features), head.table.value.shape[1]
    if features.ndim == 0 or features.shape[-1] != dim:
        raise ValueError(
            f"`features` must be inputs of layer '{head.name}', [..., {dim}]. Received: "
            f"features of shape {features.shape}. Pass the output of the layer before it, not "
            "logits."
        )
    if exclude is not None and not isinstance(exclude, jax.Array):
        exclude = _exclusions(exclude, head.num_classes)
    return _checked(*_best(head, features, int(k), exclude, allowed))


def _best(head: Head, features: jax.Array, k: int, exclude: Any, allowed: Any) -> Best:
    leading, classes, num_queries = features.shape[:-1], None, features[..., 0].size
    if exclude is not None:
        if exclude.shape[:-1] != leading:
            raise ValueError(
                "`exclude` must have a row of class ids for each query, padded with -1: shape "
                f"{(*leading, 'n')}. Received: shape {exclude.shape}. For only the last "
                "position of sequences, pass positions='last' to `predict_top_k`. To exclude "
                "classes of all queries, pass the others as `allowed`."
            )
        width = exclude.shape[-1]
        exclude = jnp.asarray(exclude, jnp.int32).reshape(num_queries, width)
    if allowed is not None:
        ids = padded_ids("allowed", allowed)
        if ids.ndim != 1:
            raise ValueError(
                "`allowed` must be a vector of class ids, [m], which all queries share. "
                f"Received: shape {ids.shape}. To filter each query differently, use `exclude`."
            )
        _check_range("allowed", ids, 0, head.num_classes)
        classes = jnp.asarray(np.unique(ids), jnp.int32)
    queries = head.form.queries(features.reshape(num_queries, features.shape[-1]))
    scores, ids = _search(queries, *head.classes, k, exclude, classes)
    is_finite = jnp.isfinite(queries).all(axis=1, keepdims=True)
    scores, ids = jnp.where(is_finite, scores, jnp.nan), jnp.where(is_finite, ids, -1)
    return scores.reshape(*leading, k), ids.reshape(*leading, k)


def _exclusions(exclude: Any, num_classes: int | None = None) -> np.ndarray:
    """Returns `exclude` as an array with -1 as padding; checks ids if classes are known."""
    ids = np.maximum(padded_ids("exclude", exclude), -1)
    if num_classes is not None:
        if hasattr(exclude, "tocsr") and exclude.shape[-1] != num_classes:
            raise ValueError(
                f"A sparse matrix `exclude` must have one column per class, {num_classes}. "
                f"Received: shape {tuple(exclude.shape)}."
            )
        _check_range("exclude", ids, -1, num_classes)
    return ids


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


def _last_positions(features: jax.Array, mask: Any) -> tuple[jax.Array, Any]:
    """Returns the features at the last unmasked positions, and whether there is one, `[B]`."""
    if features.ndim != 3:
        raise ValueError(
            "`positions='last'` needs a model of sequences, with features [batch, time, dim] "
            f"before its output layer. Received: features of shape {features.shape}. Omit it."
        )
    if mask is None:
        return features[:, -1], None
    last = jnp.where(mask, jnp.arange(features.shape[1]), 0).max(axis=1)
    return jnp.take_along_axis(features, last[:, None, None], axis=1)[:, 0], mask.any(axis=1)
