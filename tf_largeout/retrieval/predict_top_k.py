from typing import TYPE_CHECKING, Any, Literal, Protocol

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import one_of, require_width, whole_number
from tf_largeout.classes.best_scores import NOTHING
from tf_largeout.classes.filtered_top_k import class_ids, exclusions, ragged_class_ids
from tf_largeout.classes.probabilities import SCORES, Scores
from tf_largeout.steps.output_tag import require_model, tag_and_mask
from tf_largeout.types import TensorLike

if TYPE_CHECKING:
    from tf_largeout.layers import ClassOutput


class TopKIndex(Protocol):
    """Finds classes for `predict_top_k`, inside a `tf.function`.

    If it has the attributes `num_classes` or `dim`, they must be equal to those of the model's
    output layer. If it has a method `require_current(class_matrix)`, `predict_top_k` calls it
    to check the class rows.
    """

    def top_k(
        self,
        queries: tf.Tensor,
        k: int,
        exclude: tf.Tensor | None = None,
        allowed: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Like `Index.top_k`, for tensors."""


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
    scores: Scores = "logit",
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the `k` best classes of each example.

    It runs the loop of Keras's `predict`, with its batches, replicas and progress bar. But it
    never stores a `[batch, num_classes]` tensor. Scores are logits, or log-probabilities for a
    `HierarchicalOutput`; `scores="softmax"` returns probabilities. Each call traces the model
    again. So if you have only a few examples at a time, call `top_k` of the layer instead.

    ```python
    scores, ids = tflo.retrieval.predict_top_k(model, x, 10, exclude=seen)
    ```

    Args:
        model: A model with one output, from a `LargeOutput` or another output
            layer of this library.
        x: As in `model.predict`: arrays, in the structure of the model's inputs; or a
            `tf.data.Dataset`, a `keras.utils.PyDataset` or a generator of batches, whose
            labels and weights are ignored.
        k: Number of classes, at least 1. It may be larger than the number of classes.
        exclude: Ids `[examples, n]` of classes that must not be in the result of the example,
            such as its known classes, padded with -1. Or lists of different lengths: a list of
            lists or sets, a `tf.RaggedTensor`, or a SciPy sparse matrix, whose nonzero columns
            are excluded. For results at all positions of sequences, the shape is `[examples,
            time, n]`. `exclude` requires arrays as `x`, because only these have a known order
            of examples.
        allowed: Ids `[m]`, or a set, of the only classes that may be in any result; None, the
            default, for all.
        index: An index that finds the classes, such as an `InvertedFileIndex`. It may miss
            some. Its `top_k` gets `layer.queries` of the output layer's inputs. None, the
            default, uses the exact `top_k` of the layer, which takes O(num_classes) time per
            example.
        batch_size: Batch size for arrays; 32 by default, as in Keras.
        verbose: As in `predict`.
        positions: None, the default, returns a result for each position of a sequence. "last"
            returns one result per sequence, for the last position that is not masked. The mask
            comes from the model, for example from `keras.layers.Embedding(mask_zero=True)`.
            Without a mask, "last" is the last of all positions, so sequences with padding on
            the right need a mask. For a sequence of only padding, the result is -inf (0 for
            probabilities) and -1.
        scores: "logit", the default, "softmax", "top_k_softmax" or "sigmoid", as in the
            layer's `top_k`. "softmax" always means the softmax over all classes of the layer,
            even with `exclude`, `allowed` or an index. This takes another pass over all
            classes, so with an index it takes O(num_classes) time per example, too.
            "top_k_softmax" takes no such pass: it is the softmax over the `k` classes of the
            result (equation 1 of Vijayanarasimhan et al. 2015 over the top K classes).

    Returns:
        `(scores, ids)`: NumPy float32 and int64 `[examples, k]`, or `[examples, time, k]` for
        all positions of sequences; best first, padded with -1 and -inf (0 for probabilities) if
        there are fewer than `k` classes, or the filters leave fewer.

    Raises:
        ValueError: If the model has another output, `k` or `batch_size` is not at least 1,
            `index` is not an index, or has other classes, class rows or biases than the layer,
            a filter does not match `x`, `exclude` is given and `x` is not arrays, `positions`
            is "last" and the model has no sequences, or the layer does not support `scores`.
        tf.errors.InvalidArgumentError: If an id of a filter is out of range, or the features of
            an example are not finite.
    """
    require_model(model, "`predict_top_k`")
    k = whole_number("k", k)
    whole_number("batch_size", batch_size, or_none=True)
    _require_index(index)
    _reject_lists_of_texts(x)
    one_of("scores", scores, SCORES)
    if positions is not None:
        one_of("positions", positions, ["last"])
    if allowed is not None:
        allowed = class_ids("allowed", allowed)
    sparse = exclude if hasattr(exclude, "tocsr") else None
    if exclude is not None:
        exclude = ragged_class_ids("exclude", exclude)
        _require_rows(x, exclude)
        x = {"x": x, "exclude": exclude}
    with model.distribute_strategy.scope():
        finder = _Finder(
            model, k, exclude is not None, sparse, allowed, index, positions, scores
        )
    shapes = [tuple(getattr(one, "shape", ())) for one in keras.tree.flatten(x)]
    if all(shape[:1] == (0,) for shape in shapes):  # Keras's loop would return no arrays
        return finder.predict_on_batch(x)
    return finder.predict(x, batch_size=batch_size, verbose=verbose)


def _require_index(index: Any) -> None:
    if index is None or (hasattr(index, "top_k") and not isinstance(index, type)):
        return
    raise ValueError(
        "`index` must be an index with a method `top_k`, or None for the exact search of the "
        f"layer. Received: index={index!r} (of type {type(index).__name__}). Build one from "
        "the layer: tf_largeout.retrieval.InvertedFileIndex().build(layer.class_embeddings(), "
        "layer.class_biases())."
    )


def _reject_lists_of_texts(x: Any) -> None:
    first = next(iter(keras.tree.flatten(x)), None)
    if isinstance(first, str) or (isinstance(first, np.ndarray) and first.dtype.kind == "U"):
        raise ValueError(
            "`x` must not contain Python or NumPy strings. If the model takes strings, pass "
            "tf.constant(texts). For a keras-hub model, pass the token ids of the texts: "
            "`x, y, sample_weight = model.preprocessor(texts)`."
        )


def _require_rows(x: Any, exclude: tf.Tensor | tf.RaggedTensor) -> None:
    arrays = keras.tree.flatten(x)
    if not all(hasattr(one, "shape") for one in arrays):
        raise ValueError(
            f"`exclude` requires arrays as `x`. Received `exclude` with x={type(x).__name__}, "
            "whose order and number of examples are not known. Pass arrays as `x`; or call "
            "`top_k` of the output layer with its queries, batch by batch."
        )
    if any(one.shape[0] != exclude.shape[0] for one in arrays):
        raise ValueError(
            "`exclude` must have a list of ids for each example. Received `exclude` of shape "
            f"{exclude.shape} for `x` of shapes {[tuple(one.shape) for one in arrays]}."
        )


class _Finder(keras.Model):
    """Wraps `model`, so that `predict` returns the best classes."""

    def __init__(
        self,
        model: keras.Model,
        k: int,
        has_exclude: bool,
        sparse_exclude: Any,  # the exclusions if they are a SciPy matrix, else None
        allowed: tf.Tensor | None,
        index: TopKIndex | None,
        positions: str | None,
        scores: Scores,
    ) -> None:
        super().__init__()
        self._model, self._k, self._has_exclude = model, k, has_exclude
        self._allowed, self._index, self._positions = allowed, index, positions
        self._scores, self._sparse_exclude = scores, sparse_exclude
        self.run_eagerly = model.run_eagerly

    @tf.autograph.experimental.do_not_convert
    def predict_step(self, data: Any) -> tuple[tf.Tensor, tf.Tensor]:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        exclude = None
        if self._has_exclude:
            x, exclude = x["x"], x["exclude"]
        tag, mask = tag_and_mask(self._model, x, "`predict_top_k`")
        if self._positions is None:
            if exclude is not None and (exclude.shape.rank, tag.features.shape.rank) == (2, 3):
                raise ValueError(
                    "`exclude` must have a list of ids for each position, [examples, time, n]. "
                    "Received: `exclude` of shape [examples, n], for a model of sequences. "
                    "Pass positions='last' to get only the last position, or repeat the ids: "
                    "np.repeat(exclude[:, np.newaxis], time, axis=1)."
                )
            return self._best(tag.owner, tag.features, exclude)
        features, has_position = _last_positions(tag.features, mask)
        scores, ids = self._best(tag.owner, features, exclude)
        if has_position is None:
            return scores, ids
        has_position = has_position[:, tf.newaxis]
        none = NOTHING if self._scores == "logit" else 0.0
        return tf.where(has_position, scores, none), tf.where(has_position, ids, -1)

    def _best(
        self,
        layer: "ClassOutput",
        features: tf.Tensor,
        exclude: tf.Tensor | tf.RaggedTensor | None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        require_width(self._sparse_exclude, layer.num_classes)
        if self._index is None:
            return layer.top_k(features, self._k, exclude, self._allowed, scores=self._scores)
        _require_same_classes(self._index, layer)
        if exclude is not None:
            exclude = exclusions(exclude, features, layer.num_classes)
        queries = tf.cast(layer.make_tag(features).queries, tf.float32)
        found = self._index.top_k(queries, self._k, exclude=exclude, allowed=self._allowed)
        scores = layer.class_matrix.form.capped(found[0])
        convert = layer.probabilities(self._scores)
        if convert is not None:
            scores = convert(scores, queries, layer.class_matrix.ranked_by(layer.ranking))
        shape = tf.concat([tf.shape(features)[:-1], [self._k]], axis=0)
        return tf.reshape(scores, shape), tf.reshape(found[1], shape)


def _last_positions(
    features: tf.Tensor, mask: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Returns the features at the last unmasked positions, and whether there is one, `[B]`."""
    if features.shape.rank != 3:
        raise ValueError(
            "`positions='last'` needs a model of sequences, with features [batch, time, dim] "
            f"before its output layer. Received: features of shape {features.shape}. Omit "
            "`positions`."
        )
    if mask is None:
        return features[:, -1], None
    mask, steps = tf.cast(mask, tf.bool), tf.range(tf.shape(features)[1])
    last = tf.reduce_max(tf.where(mask, steps, 0), axis=1)
    return tf.gather(features, last, batch_dims=1), tf.reduce_any(mask, axis=1)


def _require_same_classes(index: TopKIndex, layer: "ClassOutput") -> None:
    for name in ("num_classes", "dim"):
        own, expected = getattr(index, name, None), getattr(layer.class_matrix, name)
        if own is not None and own != expected:
            raise ValueError(
                f"`index` must have the classes of layer '{layer.name}', with "
                f"{name}={expected}. Received: a {type(index).__name__} with {name}={own}. "
                "Build it from the layer's class_embeddings()."
            )
    if not layer.class_matrix.scores_are_products:
        raise ValueError(
            f"`index` must be None for layer '{layer.name}': its scores are log-probabilities, "
            "not inner products, so an index ranks them wrongly. Received: a "
            f"{type(index).__name__}. Omit `index`."
        )
    ranking = getattr(index, "ranking", "logit")
    if ranking != layer.ranking:
        raise ValueError(
            f"Layer '{layer.name}' ranks classes by {layer.ranking!r}, as its loss does, but "
            f"the {type(index).__name__} ranks by {ranking!r}. Omit `index`: the exact search "
            "ranks as the layer does."
        )
    if hasattr(index, "require_current"):
        with tf.init_scope():
            index.require_current(layer.class_matrix.with_form(cap=None))
