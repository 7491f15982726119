"""`predict_top_k`: `predict` for models whose logits of all classes would not fit."""

from typing import Any, Literal, Protocol

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import one_of, whole_number
from tf_largeout.classes.filtered_top_k import class_ids, class_rows, exclusions
from tf_largeout.retrieval.last_positions import last_positions
from tf_largeout.tags.model_output import tag_and_mask
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
    positions: Literal["last"] | None = None,
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
            such as those it is known to have, padded with -1. Or with rows of different
            lengths: a list of lists or sets, a `tf.RaggedTensor`, or a sparse matrix of SciPy,
            which excludes the columns that are not 0. If the answer has all positions of
            sequences, `[examples, time, n]`. Only with arrays as `x`, whose rows have an order.
        allowed: Ids `[m]`, or a set, of the only classes that may be in any answer; None, the
            default, for all.
        index: What finds the classes, of which it may miss some; its `top_k` is called with the
            features that enter the output layer. None, the default, for the exact `top_k` of
            the layer, in O(num_classes) a row.
        batch_size: Of arrays; 32 by default, as in Keras.
        verbose: As in `predict`.
        positions: None, the default, for an answer for each position of a sequence; "last" for
            one for each sequence: that of the last position which the mask of the model (such
            as that of `keras.layers.Embedding(mask_zero=True)`) leaves, whether the padding is
            on the left or on the right. Without a mask it is the last of all positions, so
            sequences that are padded on the right need a mask. A sequence of padding alone has
            no answer: -inf and -1.

    Returns:
        `(scores, ids)`: numpy float32 and int64 `[examples, k]`, of all positions of sequences
        `[examples, time, k]`; best first, with -inf and -1
        where the filters leave fewer than `k` classes.

    Raises:
        ValueError: If the model has another output, `k` is out of range, `index` is one of
            other classes, a filter is not integers or does not fit `x`, `exclude` is given
            but `x` is not arrays, or `positions` is "last" but the model has no sequences.
        tf.errors.InvalidArgumentError: If a filter names a class that there is not, or features
            of an example are not finite.
    """
    k = whole_number("k", k)
    if positions is not None:
        one_of("positions", positions, ["last"])
    if allowed is not None:
        allowed = class_ids("allowed", allowed)
    if exclude is not None:
        exclude = class_rows("exclude", exclude)
        _require_rows(x, exclude)
        x = {"x": x, "exclude": exclude}
    with model.distribute_strategy.scope():
        finder = _Finder(model, k, exclude is not None, allowed, index, positions)
    if _is_empty(x):  # of which Keras's loop makes no result at all
        scores, ids = finder.predict_on_batch(x)
    else:
        scores, ids = finder.predict(x, batch_size=batch_size, verbose=verbose)
    return scores, ids


def _is_empty(x: Any) -> bool:
    """Whether `x` is arrays without a row."""
    return all(tuple(getattr(one, "shape", ()))[:1] == (0,) for one in keras.tree.flatten(x))


def _require_rows(x: Any, exclude: tf.Tensor | tf.RaggedTensor) -> None:
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
        positions: str | None,
    ) -> None:
        super().__init__()
        self._model, self._k, self._has_exclude = model, k, has_exclude
        self._allowed, self._index, self._positions = allowed, index, positions
        self.run_eagerly = model.run_eagerly

    @tf.autograph.experimental.do_not_convert
    def predict_step(self, data: Any) -> tuple[tf.Tensor, tf.Tensor]:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        exclude = None
        if self._has_exclude:
            x, exclude = x["x"], x["exclude"]
        tag, mask = tag_and_mask(self._model, x, "`predict_top_k`")
        if self._positions is None:
            _refuse_one_row_for_positions(exclude, tag.features)
            return self._best(tag.layer, tag.features, exclude)
        features, has_position = last_positions(tag.features, mask)
        scores, ids = self._best(tag.layer, features, exclude)
        if has_position is None:
            return scores, ids
        has_position = has_position[:, tf.newaxis]
        return tf.where(has_position, scores, -float("inf")), tf.where(has_position, ids, -1)

    def _best(
        self, layer: Any, features: tf.Tensor, exclude: tf.Tensor | tf.RaggedTensor | None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        if self._index is None:
            return layer.top_k(features, self._k, exclude, self._allowed)
        _require_same_classes(self._index, layer)
        if exclude is not None:
            exclude = exclusions(exclude, features, layer.num_classes)
        queries = layer.make_tag(features, training=False).flat_features
        queries = tf.cast(queries, tf.float32)
        found = self._index.top_k(queries, self._k, exclude=exclude, allowed=self._allowed)
        shape = tf.concat([tf.shape(features)[:-1], [self._k]], axis=0)
        return tf.reshape(found[0], shape), tf.reshape(found[1], shape)


def _refuse_one_row_for_positions(
    exclude: tf.Tensor | tf.RaggedTensor | None, features: tf.Tensor
) -> None:
    if exclude is not None and exclude.shape.rank == 2 and features.shape.rank == 3:
        raise ValueError(
            "`exclude` must have a row for each position, [examples, time, n]. Received: "
            "`exclude` of shape [examples, n], for a model of sequences. Pass positions='last' "
            "to ask for the last position alone, or repeat the rows: "
            "np.repeat(exclude[:, np.newaxis], time, axis=1)."
        )


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
