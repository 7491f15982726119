"""What an exported model computes: the best classes of its inputs, as functions of tensors."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout.layers import ClassOutput
from tf_largeout.serving.class_scores import NOTHING, ClassScores
from tf_largeout.tags.model_output import output_tag

Answer = dict[str, tf.Tensor]


class Endpoints:
    """The two signatures of an export.

    A row whose features are not finite, or so large that scores may overflow, gets -inf and
    -1. An error would fail the whole batch, which a server may have made of several requests.

    Args:
        model: The model; its output is that of a `ClassOutput` layer.
        classes: What finds the best classes.
        num_classes: How many there are.
        largest_features: The sum of `|h_i|` of a row above which scores may overflow.
    """

    def __init__(
        self,
        model: keras.Model,
        classes: ClassScores,
        num_classes: int,
        largest_features: float,
    ) -> None:
        self._model, self._classes, self._num_classes = model, classes, num_classes
        self._largest_features = largest_features

    def best(self, inputs: Any, k: int) -> Answer:
        """The `k` best classes.

        Args:
            inputs: Those of the model.
            k: Between 1 and the number of classes.

        Returns:
            `scores` float32 and `ids` int64 `[batch, ..., k]`, best first.
        """
        rows, finite, shape = self._rows(inputs)
        scores, ids = self._classes.top_k(rows, k)
        return _answer(scores, ids, finite, shape)

    def best_but(self, inputs: Any, k: tf.Tensor, exclude: tf.Tensor) -> Answer:
        """The `k` best classes that are not excluded, exactly so if `classes` is exact.

        Args:
            inputs: Those of the model.
            k: int32, from 0 to the number of classes.
            exclude: int64 `[batch, n]`, or `[1, n]` for the same ids in all rows; ids that are
                no class, such as the padding -1, exclude nothing.

        Returns:
            As `best`, padded with -inf and -1 where fewer classes are left.

        Raises:
            tf.errors.InvalidArgumentError: When the signature runs, if `k` is out of range.
        """
        valid = tf.debugging.Assert(
            (k >= 0) & (k <= self._num_classes),
            [f"`k` must be from 0 to the number of classes, {self._num_classes}. Received:", k],
        )
        with tf.control_dependencies([valid]):
            k = tf.identity(k)
        rows, finite, shape = self._rows(inputs)
        batch = tf.shape(rows)[0] if shape is None else shape[0]
        exclude = tf.broadcast_to(exclude, [batch, tf.shape(exclude)[1]])
        if shape is not None:  # all positions of a sequence have its exclusions
            exclude = tf.repeat(exclude, tf.reduce_prod(shape[1:]), axis=0)
        # The ops of the custom export take a `k` of at least 1.
        scores, ids = self._classes.top_k(rows, tf.maximum(k, 1), exclude)
        return _answer(scores[:, :k], ids[:, :k], finite, shape)

    def _rows(self, inputs: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Features as float32 `[B, dim]`, which are finite, and the shape of several axes.

        Rows whose features or scores may not be finite are zeros.
        """
        features = output_tag(self._model, inputs, "`export`").features
        shape = None
        if features.shape.rank > 2:
            shape = tf.shape(features)[:-1]
            features = tf.reshape(features, [-1, features.shape[-1]])
        rows = tf.cast(features, tf.float32)
        size = tf.reduce_sum(tf.abs(rows), axis=1, keepdims=True)
        finite = size <= self._largest_features  # NaN is not
        return tf.where(finite, rows, 0.0), finite, shape


def output_layer_of(model: keras.Model, specs: Any) -> ClassOutput:
    """The layer that gives the output of `model`.

    Args:
        model: A built model.
        specs: A `tf.TensorSpec` for each of its inputs, in their structure.

    Raises:
        ValueError: If it is no `ClassOutput` layer.
    """
    found: list[ClassOutput] = []

    @tf.function(input_signature=[specs], autograph=False)
    def find(inputs: Any) -> None:
        found.append(output_tag(model, inputs, "`export`").layer)

    find.get_concrete_function()
    return found[0]


def _answer(
    scores: tf.Tensor, ids: tf.Tensor, finite: tf.Tensor, shape: tf.Tensor | None
) -> Answer:
    scores = tf.where(finite, scores, NOTHING)
    ids = tf.where(scores > NOTHING, ids, -1)
    if shape is not None:
        shape = tf.concat([shape, tf.shape(scores)[1:]], axis=0)
        scores, ids = tf.reshape(scores, shape), tf.reshape(ids, shape)
    return {"scores": scores, "ids": ids}
