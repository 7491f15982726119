"""The base class of output layers: the logits, and what is asked of all of them."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout import keras_internals
from tf_largeout.arguments import is_whole
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.classes.filtered_top_k import exact_top_k
from tf_largeout.layers import initial_values, several_workers
from tf_largeout.layers.large_predictions import LargePredictions
from tf_largeout.layers.ranked_classes import RankedClasses
from tf_largeout.ops import devices
from tf_largeout.tags.output_tag import OutputTag, are_logits_left_out
from tf_largeout.types import InitializerLike, Shape, TensorLike


class ClassOutput(RankedClasses):
    """Base of the layers that score many classes, one logit per class.

    A subclass makes `class_matrix` in `build`, with `width_of` and `add_class_weight`; and it
    writes `make_tag`, if its losses ask for more than an `OutputTag` offers. A subclass of
    `ClassMatrix` may score classes in another way than by an inner product.

    Call arguments:
        features: `[batch, dim]` or `[batch, ..., dim]`; integers are cast to floats.
        training: Whether the step trains.

    Output shape:
        `[batch, ..., num_classes]`, of the layer's compute dtype.

    Args:
        **kwargs: Of `RankedClasses` and `keras.layers.Layer`.

    Raises:
        ValueError: If there is an `activity_regularizer`, which would need all logits in each
            step, or the features are sparse or ragged.

    Attributes:
        num_classes: Number of classes.
        class_matrix: The `ClassMatrix`, of a built layer.
    """

    num_classes: int

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if self.activity_regularizer is not None:
            raise ValueError(
                f"`activity_regularizer` of layer '{self.name}' would need the logits of all "
                f"classes in each step. Received: {self.activity_regularizer}. Regularize the "
                "layer before it, or use the optimizer's `weight_decay`."
            )
        # XLA compiles neither custom ops nor gathers from a variable's handle.
        self.supports_jit = False
        self._large_predictions = LargePredictions(self)
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(min_ndim=2)

    @property
    def variables(self) -> list[keras.Variable]:
        """All variables of the layer; none while Keras's `Model.export` asks for them.

        An export has what its function reads by itself. What a model lists it would store
        besides: those variables again, and all state that only training needs.
        """
        return [] if keras_internals.is_running(keras.Model.export) else super().variables

    def width_of(self, input_shape: Shape) -> int:
        """The last dimension of the input.

        Raises:
            ValueError: If it is not known.
        """
        dim = input_shape[-1]
        if dim is None:
            raise ValueError(
                f"The last dimension of the input of layer '{self.name}' must be known. "
                f"Received: input_shape={tuple(input_shape)}. Give the layer before it a fixed "
                "number of units."
            )
        return dim

    def add_class_weight(
        self, name: str, shape: Shape, initializer: InitializerLike, **kwargs: Any
    ) -> keras.Variable:
        """Makes a weight of which steps read some rows, on a device that our ops support.

        Args:
            name: Its name.
            shape: Its shape.
            initializer: What gives it its first values.
            **kwargs: Of `keras.layers.Layer.add_weight`.
        """
        several_workers.warn_of_keras()
        if callable(initializer):
            initializer = initial_values.in_one_piece(initializer)
        # Without autocast: a cast copy under mixed precision would be O(num_classes).
        with devices.supported_device_scope():
            return self.add_weight(
                name=name, shape=shape, initializer=initializer, autocast=False, **kwargs
            )

    def make_tag(self, features: tf.Tensor, training: bool | None) -> OutputTag:
        """What the layer tells its losses and metrics in one step.

        Args:
            features: Float `[..., dim]`, the input of the layer.
            training: Whether the step trains; None where nobody said.
        """
        return OutputTag(self, features, training)

    def call(self, features: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        self._require_dense(features)
        # The dense reads go into a function of their own: TensorFlow orders each read before
        # the later updates of its variable, so in the outer function they would run even
        # where nobody needs the logits.
        in_graph, logits = tf.inside_function(), self._logits
        dense = tf.function(logits, autograph=False) if in_graph else logits
        if training is None:
            training = keras_internals.training_of_step()
        if not features.dtype.is_floating:
            features = tf.cast(features, self.compute_dtype)
        self._large_predictions.count(features)
        return self.make_tag(features, training).attach_to(dense(features))

    def _logits(self, features: tf.Tensor) -> tf.Tensor:
        if not are_logits_left_out():
            return self.class_matrix.logits(features)
        shape = tf.concat([tf.shape(features)[:-1], [self.num_classes]], axis=0)
        return tf.zeros(shape, features.dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.num_classes)

    def top_k(
        self,
        features: TensorLike,
        k: int,
        exclude: TensorLike | None = None,
        allowed: TensorLike | None = None,
        absolute: bool | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The `k` best classes by the layer's `ranking`, exactly, in O(num_classes) time.

        Args:
            features: Float `[..., dim]`.
            k: Between 1 and `num_classes`.
            exclude: Ids `[..., n]` of classes that must not be in the answer of the row,
                padded with -1. Or with rows of different lengths: a list of lists or sets, a
                `tf.RaggedTensor`, or a sparse matrix of SciPy, which excludes the columns that
                are not 0. None, the default, for none. The best `k + n` are found, and those
                struck out.
            allowed: Ids `[m]`, or a set, of the classes that may be in the answers of all rows;
                None, the default, for all. No row of another class is read, but by a
                `HierarchicalOutput`.
            absolute: True to rank by `|logit|`, False to rank by the logit. None, the default,
                for the layer's `ranking`, which is that of the loss that trained it. The
                scores are what ranks the classes: the logit, `|logit|` or `|1 + logit|`.

        Returns:
            `(scores, ids)`: float32 and int64 `[..., k]`, best first; of equal scores the
            lower id comes first. Where the filters leave fewer than `k` classes, -inf and -1
            follow.

        Raises:
            ValueError: If the layer is not built, `k` is out of range, the features have
                another width than the layer's inputs, a filter holds no integers or does not
                fit the features, or `absolute` is true for a `HierarchicalOutput`, whose
                log-probabilities have no such order.
            tf.errors.InvalidArgumentError: If a filter names a class that there is not, or the
                features are not finite; on a GPU such rows have NaN and -1 instead, but with
                `allowed`. And on a GPU if `k + n` is above 2,048, but with `allowed`.
        """
        self._require_built("top_k")
        if not (is_whole(k) and 1 <= k <= self.num_classes):
            raise ValueError(
                f"`k` must be an integer between 1 and num_classes={self.num_classes}. "
                f"Received: k={k!r}."
            )
        features = tf.cast(tf.convert_to_tensor(features), tf.float32)
        dim = self.class_matrix.dim
        if not features.shape[-1:].is_compatible_with([dim]):
            raise ValueError(
                f"`features` must be inputs of layer '{self.name}', [..., {dim}]. Received "
                f"features of shape {features.shape}. Pass what the layer before it returns, "
                "not logits."
            )
        matrix, absolute = self.ranked_by(absolute)
        return exact_top_k(matrix, features, k, exclude, allowed, absolute)

    def class_embeddings(self) -> tf.Tensor:
        """The matrix of class embeddings, `[num_classes, dim]`, without the bias.

        Raises:
            ValueError: If the layer is not built.
        """
        self._require_built("class_embeddings")
        return self.class_matrix.values()

    def changed_attributes(
        self, change: ClassChange
    ) -> list[tuple[keras.layers.Layer, str, int]]:
        """What its config must say for other classes: a layer, name and value of an attribute.

        For `resize_classes`; the layer is built.

        Args:
            change: Which classes it keeps.
        """
        return [(self, "num_classes", change.num_classes)]

    def take_classes(
        self, before: Any, change: ClassChange, new_rows: tf.Tensor | None
    ) -> list[tuple[keras.Variable, ClassChange]]:
        """Sets all variables of the layer to those of another one with other classes.

        For `resize_classes`. A subclass that adds variables extends it.

        Args:
            before: A layer of which this one is a copy, by `changed_attributes`.
            change: Which of its classes are kept.
            new_rows: float32 `[num_new, dim]`, the embeddings of the others; None for those
                that the layer has.

        Returns:
            Its trainable variables whose rows have moved, each with what moved them.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must write `take_classes` for `resize_classes`."
        )

    def _require_dense(self, features: Any) -> None:
        if isinstance(features, tf.SparseTensor | tf.RaggedTensor):
            raise ValueError(
                f"`features` of layer '{self.name}' must be a dense tensor [batch, ..., dim]. "
                f"Received: a {type(features).__name__} of shape {features.shape}. Put a "
                "keras.layers.Dense before it, or for bags of ids an EmbeddingBag; "
                "`to_tensor()` pads ragged sequences."
            )

    def _require_built(self, method: str) -> None:
        if not self.built:
            raise ValueError(
                f"`{method}` needs the weights of layer '{self.name}', which is not built yet. "
                "Call the model on data, or build it with its input shape, first."
            )
