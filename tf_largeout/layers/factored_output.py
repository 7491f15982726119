"""`FactoredOutput`: an output layer whose exact gradient step costs the same for any `N`."""

from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from tf_largeout import keras_internals
from tf_largeout.arguments import MOST_CLASSES, boolean, real_number, whole_number
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.classes.factored_matrix import FactoredMatrix
from tf_largeout.classes.factored_update import (
    FactoredUpdate,
    LearningBatch,
    Spheres,
)
from tf_largeout.layers import factored_classes, factored_weights, initial_values
from tf_largeout.layers.class_output import ClassOutput
from tf_largeout.ops.factored_output_ops import FactoredState
from tf_largeout.tags.factored_logits import FactoredLogits
from tf_largeout.types import Config, InitializerLike, Shape, TensorLike
from tf_largeout.variables.initializers import constant_initializer

LearningRate: TypeAlias = float | keras.optimizers.schedules.LearningRateSchedule


@keras.saving.register_keras_serializable(package="tf_largeout")
class FactoredOutput(ClassOutput):
    """Logits of `num_classes` classes that learn from all of them in O(dim^2) a row.

    To a model it is a `Dense` layer without activation. With a loss of the spherical family
    (`TaylorSoftmaxLoss`, `ZLoss`, `SphericalSoftmaxLoss`, `SquaredErrorLoss`), and no other,
    its weights take in each training step the exact step of gradient descent on the mean loss
    of the batch, and what comes before it gets the exact gradient. No class is sampled, and the
    cost, O(batch dim^2), does not depend on `num_classes` (Vincent, de Brebisson and
    Bouthillier 2015, "Exact gradient updates in time independent of output size for the
    spherical loss family").

    The weights are a product `W = V U + 1 omega'`, with which gradient descent alone can be
    done, so the layer takes a learning rate of its own and the model's optimizer never sees
    them; it trains what comes before, at its own rate.

    ```python
    head = tflo.layers.FactoredOutput(200_000, learning_rate=50.0)
    model = keras.Sequential([encoder, head])
    model.compile(tflo.optimizers.LazyAdam(1e-3), tflo.losses.ZLoss())
    model.fit(features, labels, batch_size=512)
    ```

    Args:
        num_classes: Number of classes `N`, from 1 to 2^31 - 2.
        learning_rate: Above 0, of the gradient of the batch's mean loss; or a Keras schedule,
            of the layer's own count of steps. What a label's row gets of a mean over the batch
            is small, so the rates of plain gradient descent are large. Begin with twice the
            batch size for `TaylorSoftmaxLoss`, a fifth of it for `SphericalSoftmaxLoss`, a
            tenth of it for `ZLoss`, and 0.1 for `SquaredErrorLoss`. Then try three times as
            much and a third. A number can be changed between steps: `layer.learning_rate =
            0.1`. A step whose rate is too large raises an error and leaves the weights as
            they were.
        use_bias: Whether each class has a bias, which learns at the same rate.
        embeddings_initializer: Initializer of the class embeddings, or an array
            `[num_classes, dim]` of them; by default, as in `LargeOutput`, uniform, rows of
            length 1/2. The config leaves an array out.
        bias_initializer: Initializer of the biases, or an array `[num_classes]`.
        **kwargs: Of `keras.layers.Layer`. With the dtype policy "float64" V is float64,
            which `top_k` and metrics do not read, and so are the products of a step; all else
            that is kept of W always is.

    Call arguments:
        features: `[batch, dim]` or `[batch, ..., dim]`; integers are cast to floats.
        training: Whether the step trains.

    Output shape:
        `[batch, ..., num_classes]`, of the layer's compute dtype.

    The weights step in the backward pass, once: of one call of the layer in a training step,
    whatever the losses on it, whose sum counts, with `loss_weights`, `sample_weight` and masks.
    Loss scaling is taken out again, in `fit`; in a loop of your own do not scale the loss.
    A layer that is not `trainable` stays as it is. Per class it takes the memory of one row and
    of a number.

    A step changes the rows of its labels alone, in any number of steps. What else follows from
    them for the other rows, these take when they are met; `evaluate`, `predict` and what else
    reads all rows brings them up to date first, by one pass. No weight shows it, but for
    rounding.

    Raises:
        ValueError: If an argument is out of range; in training with gradient accumulation,
            `jit_compile=True` or several replicas, none of which can follow the rule; if a
            loss of another family is to train it; or if two calls of the layer are to train
            it in one step. No weight has changed.
        tf.errors.InvalidArgumentError: If a step would make `U` singular or a weight not
            finite. No weight has changed. Also where two calls that are to train the layer
            are in `tf.function`s of their own, which an eager loop joins: there nothing knows
            of the second call before the first one has made its step.
    """

    rankings = ("logit", "absolute", "taylor")
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
        self.embeddings_initializer = initial_values.of_embeddings(embeddings_initializer)
        self.bias_initializer = initial_values.of_biases(bias_initializer)

    def build(self, input_shape: Shape) -> None:
        dim = self.width_of(input_shape)
        self._refuse_replicas()
        if self.variable_dtype not in ("float32", "float64"):
            raise ValueError(
                f"The weights of layer '{self.name}' must be float32 or float64. Received: the "
                f"dtype policy '{self.dtype_policy.name}'. Take 'mixed_bfloat16' or "
                "'mixed_float16'."
            )
        width = dim + int(self.use_bias)
        factors = factored_weights.add_factors(self, width, self._initial_rows)
        self.anchor = self.add_weight(
            name="anchor", shape=(), initializer="zeros", autocast=False
        )
        if self._schedule is None:
            rate = constant_initializer(np.float64(self._rate))
            self._rate_weight = factored_weights.add_float64(self, "learning_rate", (), rate)
        state = FactoredState(**factors, **factored_weights.add_folds(self, width))
        for name, weight in state._asdict().items():  # where `tf.train.Checkpoint` finds them
            setattr(self, f"_{name}", weight)
        self.class_matrix = FactoredMatrix(state, self.use_bias, self.name)
        self._update = FactoredUpdate(state, self.anchor, self._current_rate, self.name)
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: dim})
        self.built = True

    def make_tag(self, features: tf.Tensor, training: bool | None) -> FactoredLogits:
        return FactoredLogits(self, features, training)

    @property
    def learning_rate(self) -> LearningRate:
        """The rate of the layer's own steps: a float, or the schedule."""
        if self._schedule is not None:
            return self._schedule
        return float(self._rate_weight) if self.built else self._rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        if self._schedule is not None:
            raise ValueError(
                f"The learning rate of layer '{self.name}' goes by a schedule. Received: "
                f"learning_rate={value!r}. Give a number to the constructor instead."
            )
        self._rate = real_number("learning_rate", value, 0.0, allow_least=False)
        if self.built:
            self._rate_weight.assign(self._rate)

    @property
    def bias(self) -> tf.Tensor | None:
        """The biases of all classes, `[num_classes]`, or None."""
        self._require_built("bias")
        return self.class_matrix.biases()

    def spheres(self, features: tf.Tensor, labels: tf.Tensor) -> Spheres:
        """What losses of the spherical family take of a batch.

        Args:
            features: Float `[B, dim]`.
            labels: int64 `[B, L]`, padded with -1.
        """
        return self._update.spheres(self._as_weights(features), labels)

    def learning_batch(self, features: tf.Tensor) -> LearningBatch:
        """The same in training: in the backward pass the weights take their step.

        Args:
            features: As in `spheres`.

        Raises:
            ValueError: In a step that the rule cannot follow.
        """
        self._refuse_replicas()
        model = keras_internals.training_model()
        loss_scale = tf.constant(1.0, tf.float64)
        if model is not None:
            self._refuse_step_of(model)
            loss_scale = tf.cast(model.optimizer.scale_loss(tf.constant(1.0)), tf.float64)
        return self._update.learning_batch(
            self._as_weights(features), loss_scale, update=self.trainable
        )

    def drift(self, num_probes: int = 16) -> dict[str, float]:
        """How far what is kept of W has drifted from V, U and omega, in one pass over V.

        Along random directions x: `gram` is the largest error of `x'Qx`, which stands for
        `|W x|^2`, relative to it; `total` that of `<w_bar, x>`, which stands for the sum of
        `W x`, relative to its largest possible value; `inverse` the largest error of `U U^-1`.

        Args:
            num_probes: How many directions.

        Raises:
            ValueError: If the layer is not built, or `num_probes` is out of range.
        """
        self._require_built("drift")
        found = self._update.drift(whole_number("num_probes", num_probes))
        return {name: float(value) for name, value in found.items()}

    def load_own_variables(self, store: Any) -> None:
        super().load_own_variables(factored_weights.with_folds(store, self.weights))

    def take_classes(
        self, before: Any, change: ClassChange, new_rows: tf.Tensor | None
    ) -> list[tuple[keras.Variable, ClassChange]]:
        state = self.class_matrix.state
        of_state = set(map(id, state))
        for old, new in zip(before.variables, self.variables, strict=True):
            if id(new) not in of_state:
                change.copy(old, new)
        factored_classes.move_classes(before.class_matrix.state, state, change, new_rows)
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
            "embeddings_initializer": initial_values.serialize(self.embeddings_initializer),
            "bias_initializer": initial_values.serialize(self.bias_initializer),
        }

    def _initial_rows(self, shape: tuple[int, int], dtype: str | None = None) -> tf.Tensor:
        """Embeddings and, in the last column, biases."""
        first_values = initial_values.in_one_piece(self.embeddings_initializer)
        rows = first_values((shape[0], shape[1] - int(self.use_bias)), dtype)
        if not self.use_bias:
            return rows
        biases = self.bias_initializer(shape[:1], dtype)
        return tf.concat([rows, tf.expand_dims(biases, -1)], axis=1)

    def _current_rate(self) -> tf.Tensor:
        if self._schedule is None:
            return tf.convert_to_tensor(self._rate_weight.value)
        return tf.cast(self._schedule(self._update.state().steps), tf.float64)

    def _logits(self, features: tf.Tensor) -> tf.Tensor:
        matrix, vectors = self.class_matrix, self.class_matrix.state.vectors.value
        if keras_internals.is_running(keras.Model.export):
            with tf.init_scope():  # now, so that what is exported need not
                matrix.take_folds()
            return matrix.logits_by(features, vectors)
        if keras_internals.training_of_step() is False:  # many batches, of which one has to
            matrix.take_folds()
        return super()._logits(features)

    def _as_weights(self, features: tf.Tensor) -> tf.Tensor:
        return tf.cast(features, self.variable_dtype)

    def _refuse_replicas(self) -> None:
        count = tf.distribute.get_strategy().num_replicas_in_sync
        if count > 1:
            raise ValueError(
                f"Layer '{self.name}' cannot train on several replicas: each would step by its "
                f"own part of the batch. Received: a strategy of {count} replicas. Train it on "
                "one device, or take a `LargeOutput`."
            )

    def _refuse_step_of(self, model: keras.Model) -> None:
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        if getattr(optimizer, "gradient_accumulation_steps", None):
            raise ValueError(
                f"Layer '{self.name}' steps with each batch, so it cannot wait for "
                f"gradient_accumulation_steps={optimizer.gradient_accumulation_steps} of them. "
                "Leave that out, and make the batches larger: they cost little here."
            )
        if model.jit_compile:
            raise ValueError(
                f"XLA cannot compile the step of layer '{self.name}'. Received: a model that "
                "was compiled with jit_compile=True. Leave it out."
            )
