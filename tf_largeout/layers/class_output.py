"""`ClassOutput`: the base class of the output layers."""

import logging
import math
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tf_largeout import keras_internals
from tf_largeout.arguments import boolean, one_of
from tf_largeout.classes import probabilities
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.classes.filtered_top_k import as_float32, exact_top_k
from tf_largeout.classes.probabilities import SCORES, Probabilities, Scores
from tf_largeout.keras_internals import RunningStep
from tf_largeout.layer_arguments import checked_k, known_width, wrong_features
from tf_largeout.layers.item_tower import ItemTower
from tf_largeout.ops import devices
from tf_largeout.samplers.sampler import Sampler
from tf_largeout.steps.compiled import are_unread, check_compiled
from tf_largeout.steps.labels import excluded_ids
from tf_largeout.steps.output_tag import Head, OutputTag, Ranking, are_logits_left_out
from tf_largeout.steps.step import Step
from tf_largeout.types import Config, InitializerLike, Shape, TensorLike
from tf_largeout.variables import class_rows, initializers, replicas, saved_weights
from tf_largeout.wrong_arguments import OF_LAYERS, refuse_wrong_arguments

_NOT_DENSE = (tf.SparseTensor, tf.RaggedTensor)
MANY_LOGITS = 4 * 2**30  # bytes after which `predict` warns


class ClassOutput(keras.layers.Layer):
    """Base of the layers that score many classes, one logit per class.

    A subclass creates `class_matrix` in `build`, with `width_of` and `add_class_weight`. If its
    losses need more than a `Step` has, it sets `tag_class`. If its scores are inner products,
    `class_matrix` is a `RowScorer`; otherwise it is another `ClassScorer`.

    Call arguments:
        features: `[batch, dim]` or `[batch, ..., dim]`; integers are cast to floats.
        training: Whether the step trains.
        exclude: Optional ids of classes, such as seen items, that metrics must not rank:
            integers with the leading dimensions of the features and one more, padded with -1.
            It is an argument of a functional model: `head(features, exclude=seen)`, where
            `seen` may be an input. All metrics except `Perplexity` then rank only the other
            classes in `evaluate`. Losses, logits and training do not change.
            `metrics.with_exclude` does the same for any model.

    Output shape:
        `[batch, ..., num_classes]`, of the layer's compute dtype.

    Args:
        ranking: How classes are ranked: "logit"; "absolute", by `|logit|`; or "taylor", by
            `|1 + logit|`. None, the default, uses the ranking of the loss that trained the
            layer last. The config stores this ranking too.
        **kwargs: Arguments of `keras.layers.Layer`.

    Raises:
        ValueError: If the layer does not support the `ranking`, if `activity_regularizer` is
            given (it would need all logits in each step), or if the features are sparse or
            ragged.

    Attributes:
        num_classes: Number of classes.
        class_matrix: The `ClassScorer` of the classes, once the layer is built.
        rankings: The values of `ranking` that the layer supports.
        ranking_class: The class of the object that knows how classes are ranked.
        tag_class: The class of the tags of the output, which make the layer's steps.
    """

    num_classes: int
    class_matrix: ClassScorer
    rankings: tuple[str, ...] = ("logit",)
    sampler: Sampler | None = None  # only a `LargeOutput` has one, or a tower
    tower: ItemTower | None = None
    seed_state: keras.Variable | None = None
    ranking_class: type[Ranking] = Ranking
    tag_class: type[OutputTag] = OutputTag
    _raises = True  # see `Head`

    def __init__(self, ranking: str | None = None, **kwargs: Any) -> None:
        refuse_wrong_arguments(type(self).__name__, kwargs, OF_LAYERS)
        super().__init__(**kwargs)
        if ranking is not None and ranking not in self.rankings:
            raise ValueError(
                f"`ranking` of a {type(self).__name__} must be None or one of {self.rankings}. "
                f"Received: ranking={ranking!r}."
            )
        self._ranking = self.ranking_class(ranking)
        if self.activity_regularizer is not None:
            raise ValueError(
                f"`activity_regularizer` of layer '{self.name}' would need the logits of all "
                f"classes in each step. Received: {self.activity_regularizer}. Regularize the "
                "layer before it, or use the optimizer's `weight_decay`."
            )
        self._num_predicted_bytes, self._has_warned, self._has_explained = 0, False, False
        self.__dict__["_moved"] = []  # weights that `_move_counters` has moved
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(min_ndim=2)

    def why_not_compiled(self) -> str | None:
        """Returns why XLA cannot compile this layer, and what to do; None if it can."""
        return devices.why_not_compiled()

    @property
    def supports_jit(self) -> bool:
        """Whether XLA can compile steps of this layer, for `compile(jit_compile=...)`.

        It can with `LARGEOUT_OPS=stock` in the environment; see `why_not_compiled`. False can
        be set.
        """
        return self._supports_jit and self.why_not_compiled() is None

    @supports_jit.setter
    def supports_jit(self, value: bool) -> None:
        self._supports_jit = value

    @property
    def ranking(self) -> str:
        """How classes are ranked: "logit", "absolute" or "taylor"."""
        return self._ranking.value

    def follow(self, loss: object, *, replace: bool = True) -> None:
        """Ranks classes by the `ranking` of a loss, see `Ranking.follow`."""
        self._ranking.follow(loss, replace=replace)

    def ranking_by(self, absolute: bool | None) -> str:
        """Returns the ranking that the argument `absolute` of `top_k` selects."""
        if boolean("absolute", absolute, or_none=True) is None:
            return self.ranking
        return "absolute" if absolute else "logit"

    def probabilities(
        self, scores: Scores, absolute: bool | None = None
    ) -> Probabilities | None:
        """Returns the function that converts scores of `top_k` to probabilities, or None.

        A subclass overrides it if its probabilities are not a softmax of the scores. Arguments
        and errors are those of `top_k`.
        """
        one_of("scores", scores, SCORES)
        if scores == "sigmoid" and self.ranking_by(absolute) != "logit":
            raise ValueError(
                f"`scores='sigmoid'` needs classes that are ranked by the logit. Layer "
                f"'{self.name}' ranks them by {self.ranking_by(absolute)!r}. Use "
                "scores='softmax'."
            )
        functions: dict[str, Probabilities] = {
            "softmax": probabilities.softmax,
            "top_k_softmax": probabilities.top_k_softmax,
            "sigmoid": probabilities.sigmoid,
        }
        return functions.get(scores)

    def width_of(self, input_shape: Shape) -> int:
        """Returns the last dimension of the input. Raises a ValueError if it is not known."""
        return known_width(self.name, input_shape)

    def add_class_weight(
        self,
        name: str,
        shape: Shape,
        initializer: InitializerLike,
        rows_dtype: str | None = None,
        **kwargs: Any,
    ) -> keras.Variable:
        """Adds a weight whose rows the steps read, on a device that our ops support.

        `rows_dtype="bfloat16"` is for rows that are rounded at random; others have the variable
        dtype of the layer. See `keras.layers.Layer.add_weight` for the other arguments.
        """
        if rows_dtype == "bfloat16":
            return class_rows.add_rows(self, name, shape, initializer)
        replicas.warn_if_fit_will_fail()
        if callable(initializer):
            initializer = initializers.without_copies(initializer)
        # Without autocast: mixed precision would cast all rows, in O(num_classes) per step.
        with devices.supported_device_scope():
            weight = self.add_weight(
                name=name, shape=shape, initializer=initializer, autocast=False, **kwargs
            )
        self._raises = not (devices.runs_stock() and devices.is_on_gpu(weight))
        return class_rows.mark_sparse(weight) if shape else weight

    def _checkpoint_adapter(self, path: str) -> Any:
        # TensorFlow calls it before it restores the weights.
        if self.built:
            saved_weights.require_dtype(self.weights, path, self.name)
        if self.tower is not None:
            self.tower.require_fit(path)
        return super()._checkpoint_adapter(path)

    def make_tag(
        self,
        features: tf.Tensor,
        training: bool | None = None,
        exclude: tf.Tensor | None = None,
    ) -> OutputTag:
        """Returns the tag that makes the steps of one call, see `call`.

        `training` is None if it is not known.
        """
        if exclude is not None:
            exclude = excluded_ids(exclude, features, self.num_classes)
        training = None if training is None else bool(training)
        tag = self.tag_class(self.head(), features, training, exclude)
        tag.owner = self
        return tag

    def head(self) -> Head:
        """Returns what the steps of the layer need of it."""
        parts = self.class_matrix, self._ranking, self.sampler, self.seed_state
        return Head(self.name, *parts, raises=self._raises)

    def step(
        self,
        features: TensorLike,
        labels: TensorLike,
        training: bool = False,
        exclude: TensorLike | None = None,
    ) -> Step:
        """Returns a step as a value, for a loss in a custom training loop.

        ```python
        step = head.step(features, labels, training=True)
        loss = tf.reduce_mean(tflo.losses.sampled_softmax(step))
        ```

        For padded sequences, divide the sum by the number of `step.labels.counted` instead.

        A `LargeOutput` with a sampler draws classes for a step that trains. No logits of all
        classes are computed.

        Args:
            features: Float `[..., dim]`, what the layer would be called with. The step has `B`
                examples, the product of the leading dimensions.
            labels: As for the losses; padding is -1. Examples without a label have a loss of 0.
            training: Whether the step trains; otherwise losses are exact.
            exclude: As in `call`.

        Raises:
            ValueError: If the layer is not built, or the labels or features have a wrong form.
            tf.errors.InvalidArgumentError: If a label is out of range, or a feature is not
                finite.
        """
        self._require_built("step")
        features = as_float32("features", features, f"[..., {self.class_matrix.dim}]")
        tag = self.make_tag(features, training, exclude)
        return tag.make_step(tag.labels(labels), rows=None, sampled=training)

    def row_variables(self) -> list[keras.Variable]:
        """Returns the trained variables that have a row per class."""
        return [one for one in self.trainable_variables if len(one.shape) == 2]

    def queries(self, features: tf.Tensor) -> tf.Tensor:
        """Returns the vectors whose inner products with the class rows are the logits."""
        return self.class_matrix.form.queries(features)

    def call(
        self,
        features: tf.Tensor,
        training: bool | None = None,
        exclude: TensorLike | None = None,
    ) -> tf.Tensor:
        if features.dtype == tf.string or isinstance(features, _NOT_DENSE):
            self._refuse(features)
        # The dense reads are in a separate function. TensorFlow orders each read of a variable
        # before later updates of it. So in the outer function, the reads would run even if no
        # operation used the logits.
        in_graph, logits = tf.inside_function(), self._logits
        dense = tf.function(logits, autograph=False) if in_graph else logits
        running = keras_internals.running_step()  # what Keras is doing, from the call stack
        if training is None:
            training = running.training
        if running.model is not None:
            if running.training:
                keras_internals.prepare_first_step(running.model)
            check_compiled(self, running.model, training)
        if not features.dtype.is_floating:
            features = tf.cast(features, self.compute_dtype)
        if not self._raises:
            self._move_counters(running.is_compiled)
        if running.is_jit_refused:
            self._explain_refused_jit()
        if running.is_predict and not (running.is_compiled or are_logits_left_out()):
            self._count_predictions(features)
        return self.make_tag(features, training, exclude).attach_to(dense(features, running))

    def _logits(self, features: tf.Tensor, running: RunningStep) -> tf.Tensor:
        # TensorFlow does not remove the operations of an encoder that nothing reads, such as
        # the gather of a `keras.layers.Embedding`.
        has_tower = self.tower is not None
        unread = has_tower and running.training and are_unread(self, running.model)
        if unread or are_logits_left_out():
            shape = tf.concat([tf.shape(features)[:-1], [self.num_classes]], axis=0)
            return tf.fill(shape, tf.constant(math.nan if unread else 0.0, features.dtype))
        return self.class_matrix.logits(self.class_matrix.form.queries(features))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.num_classes)

    def top_k(
        self,
        features: TensorLike,
        k: int,
        exclude: TensorLike | None = None,
        allowed: TensorLike | None = None,
        absolute: bool | None = None,
        scores: Scores = "logit",
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the `k` best classes by the layer's `ranking`, exactly.

        The time is O(num_classes) per example.

        Args:
            features: Float `[..., dim]`.
            k: At least 1. It may be larger than `num_classes`, as in an index of `retrieval`.
            exclude: Ids `[..., n]` of classes that must not be in the result of the example,
                padded with -1. Or a different number of ids per example: a list of lists or
                sets, a `tf.RaggedTensor`, or a sparse matrix of SciPy, whose nonzero columns
                are excluded. None, the default, excludes nothing. The best `k + n` classes are
                computed, then the excluded ones are removed.
            allowed: Ids `[m]`, or a set, of the only classes that may be in the results of all
                examples. None, the default, allows all. Rows of other classes are not read,
                except by a `HierarchicalOutput`.
            absolute: True to rank by `|logit|`, False to rank by the logit. None, the default,
                uses the layer's `ranking`.
            scores: "logit", the default, returns the values that rank the classes: logits,
                `|logit|` or `|1 + logit|`, or log-probabilities for a `HierarchicalOutput`.
                "softmax" returns the probabilities of a softmax of these values over all
                classes, including excluded ones and ones that are not allowed. This takes
                another pass over all classes. A `FactoredOutput` that is trained with
                `SphericalSoftmaxLoss` or `TaylorSoftmaxLoss` has the probabilities that its
                loss defines instead. "top_k_softmax" returns the same probabilities divided by
                their sum over the `k` classes of the result (Vijayanarasimhan et al. 2015,
                equation 1 over the top K classes), without this pass. "sigmoid" returns
                `sigmoid(logit)`, for models trained one-vs-all, such as by `SigmoidLoss`.

        Returns:
            `(scores, ids)`: float32 and int64 `[..., k]`, best first. If the values that rank
            the classes are equal, the lower id comes first. If there are fewer than `k`
            classes, or the filters leave fewer, the result is padded with -1 and a score of
            -inf, or 0 if scores are probabilities.

        Raises:
            ValueError: If the layer is not built, an argument is out of range, a filter does
                not hold integers or does not match the shape of the features, or the layer does
                not support `absolute` or `scores`: a `HierarchicalOutput` has no absolute
                ranking, "sigmoid" needs a `LargeOutput` that ranks by the logit, and "softmax"
                of a `FactoredOutput` may need the `epsilon` of its loss.
            tf.errors.InvalidArgumentError: If a filter has an id that is out of range, or the
                features are not finite. On a GPU, without `allowed`, examples that are not
                finite get NaN and -1 instead of this error.
        """
        self._require_built("top_k")
        k = checked_k(k, self.num_classes)
        dim = self.class_matrix.dim
        features = as_float32("features", features, f"[..., {dim}]")
        if not features.shape[-1:].is_compatible_with([dim]):
            raise wrong_features(self.name, dim, features.shape)
        scorer = self.class_matrix.ranked_by(self.ranking_by(absolute))
        queries, convert = self.queries(features), self.probabilities(scores, absolute)
        found, ids = exact_top_k(scorer, queries, k, exclude, allowed)
        return (found if convert is None else convert(found, queries, scorer)), ids

    def class_embeddings(self) -> tf.Tensor:
        """Returns the class embeddings, `[num_classes, dim]`, without the bias."""
        self._require_built("class_embeddings")
        return self.class_matrix.values()

    def class_biases(self) -> tf.Tensor | None:
        """Returns the biases of all classes, float32 `[num_classes]`; None without biases.

        With `class_embeddings`, they are the arguments of `build` of an index, for a layer with
        shards too.
        """
        self._require_built("class_biases")
        biases = self.class_matrix.biases()
        return None if biases is None else tf.cast(biases, tf.float32)

    def score_bound(self, largest: Callable[[str, tf.Tensor], float]) -> float:
        """Returns s: neither scores of features h nor sums of terms exceed `s (1 + sum |h_i|)`.

        It is the largest class weight. Exports refuse features for which scores may overflow.
        `largest` maps the name and the values of a weight to the largest absolute value, and
        raises a ValueError if a value is not finite.
        """
        # Weights of samplers do not matter. They may be NaN at positions without a class.
        return max(
            largest(weight.name, weight.value)
            for weight in self.weights
            if "float" in str(weight.dtype) and not saved_weights.is_of_sampler(weight.name)
        )

    def changed_attributes(
        self, change: ClassChange
    ) -> list[tuple[keras.layers.Layer, str, int]]:
        """Returns what must change in configs for other classes: layers, attributes and values.

        `resize_classes` calls it on a built layer.
        """
        return [(self, "num_classes", change.num_classes)]

    def take_classes(
        self, before: Any, change: ClassChange, new_rows: tf.Tensor | None
    ) -> list[tuple[keras.Variable, ClassChange]]:
        """Sets all variables of the layer from a layer with other classes.

        `resize_classes` calls it. A subclass that adds variables extends it. The config of
        `before`, with `changed_attributes`, created this layer. `new_rows`, float32 `[num_new,
        dim]`, are the embeddings of the new classes; None leaves the initial ones. Returns the
        trainable variables whose rows have moved, each with its `ClassChange`.
        """
        raise NotImplementedError(
            f"`resize_classes` does not support {type(self).__name__}. To support it, override "
            "`take_classes`."
        )

    def _move_counters(self, is_compiled: bool) -> None:
        """Moves seeds and counters from the host to the GPU if XLA compiles the step, or back.

        A step that XLA compiles has one device. Other steps would wait for the GPU.
        """
        if is_compiled:
            self._moved += [
                one for one in self.non_trainable_variables if not devices.is_on_gpu(one)
            ]
        on_gpu = [one for one in self.weights if devices.is_on_gpu(one)]
        device = on_gpu[0].value.device if is_compiled else "CPU:0"
        for one in self._moved:
            if devices.is_on_gpu(one) != is_compiled:
                keras_internals.move_variable(one, device)

    def _explain_refused_jit(self) -> None:
        reason = self.why_not_compiled()
        if reason is not None and not self._has_explained:
            self._has_explained = True
            logging.getLogger("tf_largeout").warning(
                "Layer '%s' does not support jit_compile=True, so the model is not compiled by "
                "XLA: %s",
                self.name,
                reason,
            )

    def _count_predictions(self, features: tf.Tensor) -> None:
        """Counts the logits that Keras's `predict` computes, and warns once if they are many.

        A layer does not know when a `predict` begins. So the bytes of all calls are added, on
        the host. With several replicas, which are traced in other threads, nothing is counted.
        """
        num_examples = tf.size(features, tf.int64) // tf.shape(features, tf.int64)[-1]
        num_bytes = num_examples * (self.num_classes * features.dtype.size)
        if tf.inside_function():
            tf.numpy_function(self._add_predicted, [num_bytes], [], stateful=True)
        else:
            self._add_predicted(num_bytes)

    def _add_predicted(self, num_bytes: int) -> None:
        self._num_predicted_bytes += int(num_bytes)
        if self._has_warned or self._num_predicted_bytes <= MANY_LOGITS:
            return
        self._has_warned = True
        logging.getLogger("tf_largeout").warning(
            "`predict` has computed %.1f GiB of logits of layer '%s', %d per example. If you "
            "need only the best classes, use tf_largeout.retrieval.predict_top_k(model, x, k), "
            "which does not compute all logits.",
            self._num_predicted_bytes / 2**30,
            self.name,
            self.num_classes,
        )

    def get_config(self) -> Config:
        return {**super().get_config(), **self._ranking.get_config()}

    @classmethod
    def from_config(cls, config: Config) -> "ClassOutput":
        config = dict(config)
        # What the loss has set. No argument of a layer may begin in this way.
        of_loss = {name: config.pop(name) for name in [*config] if name.startswith("loss_")}
        layer = super().from_config(config)
        layer._ranking.set_config(of_loss)
        return layer

    def _refuse(self, features: Any) -> None:
        if features.dtype == tf.string:
            raise ValueError(
                f"`features` of layer '{self.name}' must be numbers. Received: strings of "
                f"shape {features.shape}. Convert names to ids by keras.layers.StringLookup, "
                "and ids to features by an encoder, such as keras.layers.Embedding."
            )
        raise ValueError(
            f"`features` of layer '{self.name}' must be a dense tensor [batch, ..., dim]. "
            f"Received: a {type(features).__name__} of shape {features.shape}. Put a "
            "keras.layers.Dense before the layer, or an EmbeddingBag for bags of ids. "
            "`to_tensor()` pads ragged sequences."
        )

    def _require_built(self, method: str) -> None:
        if not self.built:
            raise ValueError(
                f"`{method}` needs the weights of layer '{self.name}', which is not built yet. "
                "First call the model on data, or build it with its input shape."
            )
