"""`predict_top_k`: `predict` for models whose logits of all classes would not fit."""

from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import whole_number
from tf_largeout.filtered_top_k import class_ids, exclusions
from tf_largeout.model_output import output_tag
from tf_largeout.types import TensorLike


class TopKIndex(Protocol):
    """What finds classes for `predict_top_k`, inside of a `tf.function`.

    If it says its `num_classes` or `dim`, they must be those of the model's output layer.
    """

    def top_k(
        self,
        queries: tf.Tensor,
        k: int,
        exclude: tf.Tensor | None = None,
        allowed: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The best classes of `queries`, as those of an output layer.

        Args:
            queries: float32 `[B, dim]`.
            k: At least 1.
            exclude: int64 `[B, n]`, padded with -1, or None.
            allowed: int64 `[m]`, or None.

        Returns:
            `(scores, ids)`: float32 and int64 `[B, k]`, best first.
        """


def predict_top_k(
    model: keras.Model,
    x: Any,
    k: int,
    exclude: TensorLike | None = None,
    allowed: TensorLike | None = None,
    index: TopKIndex | None = None,
    batch_size: int | None = None,
    verbose: str | int = "auto",
) -> tuple[np.ndarray, np.ndarray]:
    """The `k` best classes of each example, where `predict` gives the logits of all classes.

    It runs Keras's own `predict` loop, with the batches, replicas and progress bar of it, but
    no step holds `[batch, num_classes]`, nor does the result. Scores are logits, for a
    `HierarchicalOutput` log-probabilities. Each call traces the model anew: of a few rows at a
    time ask `top_k` of the layer, which also ranks by `|logit|`.

    ```python
    scores, ids = tflo.retrieval.predict_top_k(model, x, 10, exclude=seen)
    ```

    Args:
        model: Its one output is that of a `LargeOutput`, `FactoredOutput` or
            `HierarchicalOutput`.
        x: What `model.predict` takes: arrays, in the structure of the model's inputs; or a
            `tf.data.Dataset`, a `keras.utils.PyDataset` or a generator of batches, whose
            labels and weights, if there are any, are not used.
        k: How many, at least 1 and without an index at most the number of classes.
        exclude: Ids `[examples, n]` of classes that must not be in the answer of the example,
            such as those it is known to have; padded with -1, or ragged. For positions of
            sequences `[examples, ..., n]`. Only with arrays as `x`, whose rows have an order.
        allowed: Ids `[m]` of the only classes that may be in any answer; None for all.
        index: What finds the classes, of which it may miss some; its `top_k` is called with the
            features that enter the output layer. None, the default, for the exact `top_k` of
            the layer, in O(num_classes) a row.
        batch_size: Of arrays; 32 by default, as in Keras.
        verbose: As in `predict`.

    Returns:
        `(scores, ids)`: numpy float32 and int64 `[examples, ..., k]`, best first; -inf and -1
        where the filters leave fewer than `k` classes.

    Raises:
        ValueError: If the model has another output, `k` is out of range, `index` is one of
            other classes, a filter holds no integers or does not fit `x`, or `exclude` comes
            with an `x` that is no arrays.
        tf.errors.InvalidArgumentError: If a filter names a class that there is not, or features
            of an example are not finite.
    """
    k = whole_number("k", k)
    if allowed is not None:
        allowed = class_ids("allowed", allowed)
    if exclude is not None:
        exclude = class_ids("exclude", exclude).numpy()
        _require_rows(x, exclude)
        x = {"x": x, "exclude": exclude}
    with model.distribute_strategy.scope():
        finder = _Finder(model, k, exclude is not None, allowed, index)
    if _is_empty(x):  # of which Keras's loop makes no result at all
        scores, ids = finder.predict_on_batch(x)
    else:
        scores, ids = finder.predict(x, batch_size=batch_size, verbose=verbose)
    return scores, ids


def _is_empty(x: Any) -> bool:
    """Whether `x` is arrays without a row."""
    return all(tuple(getattr(one, "shape", ()))[:1] == (0,) for one in keras.tree.flatten(x))


def _require_rows(x: Any, exclude: np.ndarray) -> None:
    arrays = keras.tree.flatten(x)
    if not all(hasattr(one, "shape") for one in arrays):
        raise ValueError(
            "`exclude` belongs to arrays, row by row. Received `exclude` with "
            f"x={type(x).__name__}, whose order and number of examples are not known. Pass "
            "arrays as `x`; or, for each batch, what enters the output layer to its `top_k`."
        )
    if any(one.shape[0] != exclude.shape[0] for one in arrays):
        raise ValueError(
            "`exclude` must have a row for each example. Received `exclude` of shape "
            f"{exclude.shape} for `x` of shapes {[tuple(one.shape) for one in arrays]}."
        )


class _Finder(keras.Model):
    """A model around `model` whose `predict` gives the best classes."""

    def __init__(
        self,
        model: keras.Model,
        k: int,
        has_exclude: bool,
        allowed: tf.Tensor | None,
        index: TopKIndex | None,
    ) -> None:
        super().__init__()
        self._model, self._k, self._has_exclude = model, k, has_exclude
        self._allowed, self._index = allowed, index
        self.run_eagerly = model.run_eagerly

    @tf.autograph.experimental.do_not_convert
    def predict_step(self, data: Any) -> tuple[tf.Tensor, tf.Tensor]:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        exclude = None
        if self._has_exclude:
            x, exclude = x["x"], x["exclude"]
        tag = output_tag(self._model, x, "`predict_top_k`")
        if self._index is None:
            return tag.layer.top_k(tag.features, self._k, exclude, self._allowed)
        _require_same_classes(self._index, tag.layer)
        if exclude is not None:
            exclude = exclusions(exclude, tag.features, tag.num_classes)
        queries = tf.cast(tag.flat_features, tf.float32)
        found = self._index.top_k(queries, self._k, exclude=exclude, allowed=self._allowed)
        shape = tf.concat([tf.shape(tag.features)[:-1], [self._k]], axis=0)
        return tf.reshape(found[0], shape), tf.reshape(found[1], shape)


def _require_same_classes(index: TopKIndex, layer: Any) -> None:
    for name in ("num_classes", "dim"):
        own, expected = getattr(index, name, None), getattr(layer.class_matrix, name)
        if own is not None and own != expected:
            raise ValueError(
                f"`index` must be one of the classes of layer '{layer.name}', with "
                f"{name}={expected}. Received: a {type(index).__name__} with {name}={own}. "
                "Build it from the layer's class_embeddings()."
            )
    if not layer.scores_are_products:
        raise ValueError(
            f"`index` must be None for layer '{layer.name}': its scores are log-probabilities, "
            "not inner products, so an index ranks them wrongly. Received: a "
            f"{type(index).__name__}. Leave `index` out."
        )
    ranking = getattr(index, "ranking", "logit")
    if ranking != layer.ranking:
        raise ValueError(
            f"Layer '{layer.name}' ranks classes by {layer.ranking!r}, as its loss does, but "
            f"the {type(index).__name__} ranks by {ranking!r}. Leave `index` out: the exact "
            "search ranks as the layer does."
        )
