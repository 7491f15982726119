"""`FactoredOutput`: exact gradient steps whose cost does not depend on `num_classes`."""

import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import MOST_CLASSES, boolean, real_number, whole_number
from tf_largeout.classes import probabilities
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.classes.probabilities import Probabilities, Scores
from tf_largeout.keras_internals import RunningStep, running_step
from tf_largeout.layers.class_output import ClassOutput
from tf_largeout.papers.factored.factored_matrix import FactoredMatrix
from tf_largeout.papers.factored.factored_output_ops import FactoredState
from tf_largeout.papers.factored.factored_step import FactoredRanking, FactoredTag
from tf_largeout.papers.factored.factored_update import (
    FactoredUpdate,
    gram_of,
    move_classes,
    total_of,
)
from tf_largeout.steps.labels import excluded_ids
from tf_largeout.types import Config, Elementwise, InitializerLike, Shape, TensorLike
from tf_largeout.variables import initializers

# With few folds, they take less than 1 % of the memory of V, and little time to search.
_CLASSES_PER_FOLD, _LEAST_FOLDS, _MOST_FOLDS = 2048, 16, 1024

LearningRate: TypeAlias = float | keras.optimizers.schedules.LearningRateSchedule


@keras.saving.register_keras_serializable(package="tf_largeout")
class FactoredOutput(ClassOutput):
    """Logits of `num_classes` classes, trained exactly in O(dim^2) per example.

    Use it like a `Dense` layer without activation, and train it with a loss of the spherical
    family: `TaylorSoftmaxLoss`, `ZLoss`, `SphericalSoftmaxLoss` or `SquaredErrorLoss`. Each
    training step updates the weights of the layer by exact gradient descent on the mean loss of
    the batch. The layers before it get the exact gradient. No class is sampled, and a step
    takes O(batch dim^2) time, which does not depend on `num_classes` (Vincent, de Brebisson and
    Bouthillier 2015, "Exact gradient updates in time independent of output size for the
    spherical loss family").

    The layer stores its weights W in factors: `W = V U + 1 omega'`. V has one row per class, U
    is square, and the vector omega is added to each row. Only plain gradient descent can update
    this product. So the layer has its own learning rate and updates its own weights. The
    optimizer of the model trains the other layers.

    ```python
    head = tflo.layers.FactoredOutput(200_000, learning_rate=50.0)
    model = keras.Sequential([encoder, head])
    model.compile(tflo.optimizers.LazyAdam(1e-3), tflo.losses.ZLoss())
    model.fit(features, labels, batch_size=512)
    ```

    Args:
        num_classes: Number of classes `N`, from 1 to 2^31 - 2.
        learning_rate: Learning rate for the gradient of the mean loss of the batch, above 0. Or
            a Keras schedule, which gets the layer's own count of steps. In the mean over the
            batch, the gradient of a label's row is small, so good rates are large, up to
            thousands. They depend on the loss: the guide on `FactoredOutput`, section "Learning
            rate", has the rule. The rate can be changed between steps, unless it is a schedule:
            `layer.learning_rate = 0.1`. If the rate is too large, a step raises an error and
            leaves the weights unchanged.
        use_bias: Whether each class has a bias, which is trained at the same rate.
        embeddings_initializer: Initializer of the class embeddings, or an array
            `[num_classes, dim]`. By default uniform with rows of length 1/2, as in
            `LargeOutput`. The config does not store an array.
        bias_initializer: Initializer of the biases, or an array `[num_classes]`.
        **kwargs: Arguments of `keras.layers.Layer`. With the dtype policy "float64", V and the
            products in a step are float64; `top_k` and metrics do not support this. The other
            weights are always float64.

    Call arguments and the shape of the output are those of `ClassOutput`.

    The weights are updated once per training step, in the backward pass of one call of the
    layer. If the output has several losses, the layer uses their sum, with `loss_weights`,
    `sample_weight` and masks. `fit` supports loss scaling. Do not scale the loss in your own
    training loop. If `trainable` is False, the layer is not updated. The layer stores one row
    and one number per class.

    A step writes only the rows of its labels. It records how the other rows change, and a later
    step applies these changes to a row before it reads the row. `evaluate`, `predict` and other
    functions that read all rows first apply the changes in one pass over all rows. The results
    are the same, up to rounding.

    Raises:
        ValueError: If an argument is out of range. In training, if the loss is of another
            family, if two calls of the layer are trained in one step, or with gradient
            accumulation, `jit_compile=True` or several replicas, which the exact update does
            not support. The weights stay unchanged.
        tf.errors.InvalidArgumentError: If a step would make `U` singular or a weight not
            finite. The weights stay unchanged. The same error is raised if an eager loop trains
            the layer with two `tf.function`s in one step. It is then raised by the second call,
            after the first call has updated the weights.
    """

    rankings = ("logit", "absolute", "taylor")
    ranking_class = FactoredRanking
    _ranking: FactoredRanking
    class_matrix: FactoredMatrix

    def __init__(
        self,
        num_classes: int,
        learning_rate: LearningRate,
        use_bias: bool = True,
        embeddings_initializer: InitializerLike | TensorLike | None = None,
        bias_initializer: InitializerLike | TensorLike | None = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = whole_number("num_classes", num_classes, most=MOST_CLASSES)
        if isinstance(learning_rate, dict):
            learning_rate = keras.saving.deserialize_keras_object(learning_rate)
        self._schedule = None
        if isinstance(learning_rate, keras.optimizers.schedules.LearningRateSchedule):
            self._schedule = learning_rate
        else:
            self._rate = real_number("learning_rate", learning_rate, 0.0, allow_least=False)
        self.use_bias = boolean("use_bias", use_bias)
        self.embeddings_initializer = initializers.get_for_embeddings(embeddings_initializer)
        self.bias_initializer = initializers.get_for_biases(bias_initializer)

    def why_not_compiled(self) -> str | None:
        return super().why_not_compiled() or (
            "it updates its weights within the computation of gradients. Use a LargeOutput, or "
            "leave jit_compile=True out."
        )

    def build(self, input_shape: Shape) -> None:
        dim = self.width_of(input_shape)
        self._refuse_replicas()
        if self.variable_dtype not in ("float32", "float64"):
            raise ValueError(
                f"The weights of layer '{self.name}' must be float32 or float64. Received: the "
                f"dtype policy '{self.dtype_policy.name}'. Use 'mixed_bfloat16' or "
                "'mixed_float16'."
            )
        width = dim + int(self.use_bias)
        factors = self._add_factors(width)
        self.anchor = self.add_weight(
            name="anchor", shape=(), initializer="zeros", autocast=False
        )
        if self._schedule is None:
            rate = initializers.constant_initializer(np.float64(self._rate))
            self._rate_weight = self._add_float64("learning_rate", (), rate)
        state = FactoredState(**factors, **self._add_folds(width))
        for name, weight in state._asdict().items():  # checkpoints save attributes
            setattr(self, f"_{name}", weight)
        self.class_matrix = FactoredMatrix(state, self.use_bias, self.name)
        self._update = FactoredUpdate(state, self.anchor, self._current_rate, self.name)
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: dim})
        self.built = True

    def probabilities(
        self, scores: Scores, absolute: bool | None = None
    ) -> Probabilities | None:
        """See `ClassOutput`.

        Layers that rank by `|1 + logit|` have the probabilities of `TaylorSoftmaxLoss`, and
        layers that rank by `|logit|` those of `SphericalSoftmaxLoss`.
        """
        ranking = self.ranking_by(absolute)
        if scores == "sigmoid":
            raise ValueError(
                f"`scores='sigmoid'` needs a layer that is trained one-vs-all. Layer "
                f"'{self.name}' is a FactoredOutput, which has no such loss. Use "
                "scores='softmax'."
            )
        softmaxes: dict[str, Callable[..., tf.Tensor]] = {
            "softmax": probabilities.softmax,
            "top_k_softmax": probabilities.top_k_softmax,
        }
        if scores not in softmaxes or ranking == "logit":
            return super().probabilities(scores, absolute)
        epsilon = 1.0 if ranking == "taylor" else self._ranking.epsilon
        if epsilon is None:
            raise ValueError(
                f"`scores={scores!r}` needs the `epsilon` of the SphericalSoftmaxLoss of layer "
                f"'{self.name}', which ranks by |logit|. Received: a layer that was trained "
                "with another loss. Use scores='logit', or compile the model with the loss."
            )
        log_weight = log_of_square(epsilon)
        return functools.partial(softmaxes[scores], log_weight=log_weight)

    def make_tag(
        self,
        features: tf.Tensor,
        training: bool | None = None,
        exclude: tf.Tensor | None = None,
    ) -> FactoredTag:
        if exclude is not None:
            exclude = excluded_ids(exclude, features, self.num_classes)
        training = None if training is None else bool(training)
        scale = self._loss_scale() if training and self.trainable else None
        tag = FactoredTag(self.head(), features, training, exclude, self._update, scale)
        tag.owner = self
        return tag

    @property
    def learning_rate(self) -> LearningRate:
        """The learning rate of the layer's updates: a float, or the schedule."""
        if self._schedule is not None:
            return self._schedule
        return float(self._rate_weight) if self.built else self._rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        if self._schedule is not None:
            raise ValueError(
                f"The learning rate of layer '{self.name}' is a schedule and cannot be set. "
                f"Received: learning_rate={value!r}. Pass a number to the constructor instead."
            )
        self._rate = real_number("learning_rate", value, 0.0, allow_least=False)
        if self.built:
            self._rate_weight.assign(self._rate)

    @property
    def bias(self) -> tf.Tensor | None:
        """The biases of all classes, `[num_classes]`, or None."""
        self._require_built("bias")
        return self.class_matrix.biases()

    def drift(self, num_probes: int = 16) -> dict[str, float]:
        """Returns the rounding errors of the statistics of W, in one pass over V.

        The errors are measured along random directions x. The matrix Q and the vector w_bar are
        the statistics that the layer maintains. `gram` is the largest relative error of `x'Qx`,
        which should be `|W x|^2`. `total` is the largest error of `<w_bar, x>`, which should be
        the sum of the elements of `W x`. It is relative to the largest possible value of this
        sum. `inverse` is the largest error of `U U^-1`.

        Args:
            num_probes: Number of directions.

        Raises:
            ValueError: If the layer is not built, or `num_probes` is out of range.
        """
        self._require_built("drift")
        found = self._update.drift(whole_number("num_probes", num_probes))
        return {name: float(value) for name, value in found.items()}

    def score_bound(self, largest: Callable[[str, tf.Tensor], float]) -> float:
        """See `ClassOutput`: `width * max|V| * max|U| + max|omega|`."""
        self.class_matrix.take_folds()
        found: dict[str, float] = {}

        def recorded(name: str, values: tf.Tensor) -> float:
            return found.setdefault(name, largest(name, values))

        super().score_bound(recorded)  # all weights must be finite
        width = int(self.class_matrix.state.mixing.shape[0])
        return width * found["vectors"] * found["mixing"] + found["offset"]

    def take_classes(
        self, before: Any, change: ClassChange, new_rows: tf.Tensor | None
    ) -> list[tuple[keras.Variable, ClassChange]]:
        state = self.class_matrix.state
        factors = set(map(id, state))
        for old, new in zip(before.variables, self.variables, strict=True):
            if id(new) not in factors:
                change.copy(old, new)
        move_classes(before.class_matrix.state, state, change, new_rows)
        return []

    def get_config(self) -> Config:
        rate = self.learning_rate
        if self._schedule is not None:
            rate = keras.saving.serialize_keras_object(rate)
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "learning_rate": rate,
            "use_bias": self.use_bias,
            "embeddings_initializer": initializers.serialize(self.embeddings_initializer),
            "bias_initializer": initializers.serialize(self.bias_initializer),
        }

    def _add_factors(self, width: int) -> dict[str, keras.Variable]:
        """Adds the weights that each step writes; `width` is that of a row of V."""
        vectors = self.add_class_weight(
            "vectors", (self.num_classes, width), self._initial_rows, trainable=False
        )
        return {
            "vectors": vectors,
            "mixing": self._add_float64("mixing", (width, width), "identity"),
            "inverse": self._add_float64("inverse", (width, width), "identity"),
            "offset": self._add_float64("offset", (width,), "zeros"),
            "total": self._add_float64("total", (width,), total_of(vectors)),
            "gram": self._add_float64("gram", (width, width), gram_of(vectors)),
            "steps": self.add_class_weight(
                "steps", (), "zeros", dtype="int64", trainable=False
            ),
        }

    def _add_folds(self, width: int) -> dict[str, keras.Variable]:
        """Adds the pending changes of the rows that a step does not read: the last weights."""
        count = self.num_classes // _CLASSES_PER_FOLD
        count = min(max(count, _LEAST_FOLDS), _MOST_FOLDS)
        seen = self.add_class_weight(
            "seen", (self.num_classes,), "zeros", dtype="uint32", trainable=False
        )
        folds = self._add_float64("folds", (count + 1, width + 1), "zeros")
        return {"folds": folds, "seen": seen}

    def _add_float64(
        self, name: str, shape: Shape, initializer: InitializerLike
    ) -> keras.Variable:
        """Adds a weight that is not trained by gradients."""
        return self.add_class_weight(name, shape, initializer, dtype="float64", trainable=False)

    def _initial_rows(self, shape: tuple[int, int], dtype: str | None = None) -> tf.Tensor:
        """Returns embeddings and, in the last column, biases."""
        first_values = initializers.without_copies(self.embeddings_initializer)
        rows = first_values((shape[0], shape[1] - int(self.use_bias)), dtype)
        if not self.use_bias:
            return rows
        biases = self.bias_initializer(shape[:1], dtype)
        return tf.concat([rows, tf.expand_dims(biases, -1)], axis=1)

    def _current_rate(self) -> tf.Tensor:
        if self._schedule is None:
            return tf.convert_to_tensor(self._rate_weight.value)
        return tf.cast(self._schedule(self._update.state().steps), tf.float64)

    def _logits(self, features: tf.Tensor, running: RunningStep) -> tf.Tensor:
        matrix, vectors = self.class_matrix, self.class_matrix.state.vectors.value
        if running.is_export:
            with tf.init_scope():  # now, so that the exported function need not do it
                matrix.take_folds()
            return matrix.logits_by(features, vectors)
        if running.training is False:  # once for all batches of `evaluate`
            matrix.take_folds()
        return super()._logits(features, running)

    def _loss_scale(self) -> Callable[[], tf.Tensor]:
        """Returns a function for the factor of the gradients of the step, a float64 scalar.

        The loss calls it. Within `call`, Keras would cast it to float16, where it may overflow.
        """
        self._refuse_replicas()
        running = running_step()
        model = running.model
        if model is None or not running.training:
            return functools.partial(tf.constant, 1.0, tf.float64)
        self._refuse_step_of(model)
        scale = model.optimizer.scale_loss
        return lambda: tf.cast(scale(tf.constant(1.0)), tf.float64)

    def _refuse_replicas(self) -> None:
        count = tf.distribute.get_strategy().num_replicas_in_sync
        if count > 1:
            raise ValueError(
                f"Layer '{self.name}' cannot train on several replicas, because each would "
                f"update its weights from its own part of the batch. Received: a strategy of "
                f"{count} replicas. Train it on one device, or use a `LargeOutput`."
            )

    def _refuse_step_of(self, model: keras.Model) -> None:
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        if getattr(optimizer, "gradient_accumulation_steps", None):
            raise ValueError(
                f"Layer '{self.name}' updates its weights with each batch, so it does not "
                "support gradient accumulation. Received: gradient_accumulation_steps="
                f"{optimizer.gradient_accumulation_steps}. Leave that out, and use larger "
                "batches, which take little more time with this layer."
            )
        if model.jit_compile:
            raise ValueError(
                f"XLA cannot compile the update of layer '{self.name}'. Received: a model that "
                "was compiled with jit_compile=True. Leave that out."
            )


def log_of_square(epsilon: float) -> Elementwise:
    """Returns the function `log(s^2 + epsilon)`, without overflow of the square.

    With it, `softmax` gives the probabilities of the spherical softmax. Those of the Taylor
    softmax are proportional to `1 + o + o^2 / 2 = (s^2 + 1) / 2` for the score `s = |1 + o|`,
    so its epsilon is 1.
    """

    def of(scores: tf.Tensor) -> tf.Tensor:
        size, root = tf.abs(scores), math.sqrt(epsilon)
        larger, smaller = tf.maximum(size, root), tf.minimum(size, root)
        return 2 * tf.math.log(larger) + tf.math.log(1 + tf.square(smaller / larger))

    return of
