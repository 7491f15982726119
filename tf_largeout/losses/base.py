"""The base classes of the losses of this library."""

import warnings
from collections.abc import Callable
from typing import Any, Generic, TypedDict, TypeVar

import keras
import tensorflow as tf
from typing_extensions import Self, Unpack

from tf_largeout import checks
from tf_largeout.arguments import CrossEntropyArguments, boolean, int64_or_none, one_of, unpack
from tf_largeout.keras_internals import mask_of, running_step, set_mask
from tf_largeout.keras_names import snake_case
from tf_largeout.sampled_values import COUNTS, DRAWS, NONE
from tf_largeout.steps.labels import per_example
from tf_largeout.steps.output_tag import tag_of
from tf_largeout.steps.step import Candidates, SampledStep, Step, row_sums
from tf_largeout.types import Config, DTypeLike, TensorLike
from tf_largeout.wrong_arguments import OF_LOSSES, refuse_wrong_arguments_of

AnyStep = TypeVar("AnyStep", bound=Step)
# Dtypes of the factors in a loss's products.
COMPUTE_DTYPES = ("float32", "bfloat16")


class LossOptions(TypedDict, total=False):
    """The arguments that all losses have, see `TaggedLoss`."""

    reduction: str | None
    name: str | None
    dtype: DTypeLike | None
    ignore_class: int | None


class TaggedLoss(keras.losses.Loss, Generic[AnyStep]):
    """A loss that uses the tag of an output layer, not its logits.

    A tag is an object that an output layer attaches to its output. With labels, it makes a
    `Step`: the features, labels and classes of a batch. A loss is a function of the step. A
    subclass defines this function, `of_step`. This class handles labels, masks, weights and
    reduction.

    An example whose labels are all -1 does not count, as with a Keras mask or with
    `ignore_class=-1` in Keras's losses. Positions of sequences that do not count are not
    scored, except by a `FactoredOutput`. The reduction "sum_over_batch_size" divides by the
    number of examples that count, whatever their weights. "mean_with_sample_weight" divides by
    the sum of their weights. If no example of a batch counts, the loss and its gradient are 0.
    Each replica of a strategy divides by the number of examples that count in its part of the
    batch.

    Args:
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss. By default its class name in snake case, such as "nce_loss".
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        ignore_class: An id, such as -100, that marks labels to ignore, as in Keras's
            `SparseCategoricalCrossentropy`. It has the effect of -1, which always marks
            padding. It can be any int, even the id of a class. The metrics of the same output
            ignore it too. None: only -1 is ignored.

    Attributes:
        step_class: The class of steps that the loss needs, which determines the layers that it
            can train.
        samples: Whether the loss needs a sample in training, if the layer has a sampler.
        changes_some_rows: Whether its gradient has only rows of some classes.
        ranking: How a model that is trained with this loss ranks the classes: by "logit",
            "absolute" (`|logit|`) or "taylor" (`|1 + logit|`).
        takes_soft_targets: Whether the loss accepts soft targets.
        takes_numeric_targets: Whether the loss accepts any numbers as sparse targets. Metrics
            then use the classes with a target above 0 as labels.

    Call arguments:
        y_true: Integer class ids. `[batch]` for one label per example. `[batch, max_labels]`,
            padded with -1 or ragged, for several. For sequences `[batch, time]` or `[batch,
            time, max_labels]`. A label that is repeated in an example counts as often as it
            occurs, as in `tf.nn`. Multi-hot labels, a matrix of only 0 and 1 with one column
            per class, raise an error. If the loss accepts soft targets: also the target
            probabilities of the classes, as a `tf.SparseTensor` `[batch, num_classes]` or
            `[batch, time, num_classes]` of floats.
        y_pred: The direct output of an output layer of this library.
        sample_weight: Optional finite weights, aligned with the leading dimensions: for
            sequences `[batch, time, dim]` they are `[batch]` or `[batch, time]`. The weights of
            examples that do not count have no effect, even if they are NaN.

    Raises:
        ValueError: If `ignore_class` is neither an int nor None, `y_pred` is not the direct
            output of such a layer, the labels are neither integers nor soft targets, or the
            shapes of labels or weights do not match the features.
        tf.errors.InvalidArgumentError: If a label is out of range, the labels are multi-hot, or
            a feature or a weight is not finite.
    """

    step_class: type[Step] = Step  # the class `AnyStep`
    samples = changes_some_rows = False
    ranking = "logit"
    takes_soft_targets = False
    takes_numeric_targets = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        refuse_wrong_arguments_of(cls, kwargs, OF_LOSSES)
        return super().__new__(cls)

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: DTypeLike | None = None,
        ignore_class: int | None = None,
    ) -> None:
        name = name or snake_case(type(self).__name__)
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.ignore_class = int64_or_none("ignore_class", ignore_class)

    def of_step(self, step: AnyStep) -> tf.Tensor:
        """Returns the loss of each example of a `step_class` object, float32 `[B]`.

        It is 0 for an example without labels. If the step does not train (`step.training`), it
        is what `evaluate` reports.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `of_step`.")

    def __call__(
        self, y_true: TensorLike, y_pred: tf.Tensor, sample_weight: TensorLike | None = None
    ) -> tf.Tensor:
        # Overridden because Keras would cast the labels to float32, which is wrong above 2^24.
        tag, mask = tag_of(y_pred, type(self).__name__, self.step_class), mask_of(y_pred)
        if tag is not None:
            tag.loss = self
            tag.head.ranking.follow(self, replace=bool(tag.training))
            labels = tag.labels(y_true, self.takes_numeric_targets)
            counted = tag.counted(labels)
            # Not of `y_pred`: for its shape, the step would compute all logits.
            if mask is not None:
                counted &= per_example(mask, tag.features, "bool")
            mask = counted
        if sample_weight is not None:
            _check_class_weight(y_true)
            raises = tag is None or tag.head.raises
            like = y_pred if tag is None else tag.features
            sample_weight = self._checked_weights(sample_weight, like, mask, raises)
        if tag is None:
            losses = tf.reduce_sum(y_pred, axis=-1)  # a placeholder: Keras infers shapes
        else:
            is_compiled = tf.inside_function() and running_step().is_compiled
            counters = tag.counters() if is_compiled else []
            checked = [labels.ids]
            if tag.head.raises:
                checked += [tag.flat_features]
                checked += [] if sample_weight is None else [sample_weight]
            with tf.control_dependencies(checked):  # before a sampler changes its state
                sampled = self.samples and bool(tag.training)
                selected = tag.step(labels, labels.counted, sampled)
                losses = self.of_step(selected.step)  # type: ignore[arg-type]  # step_class
                if selected.rows is not None:
                    losses = selected.rows.put_back(losses)
            losses = tf.reshape(losses, tf.shape(tag.features)[:-1])
            losses = tf.ensure_shape(losses, tag.features.shape[:-1])
            if is_compiled:  # it cannot raise errors: see `checks`
                is_valid = tag.are_valid(labels)
                losses = checks.valid_only_if(is_valid, losses)
                mask |= ~is_valid
                if sample_weight is not None:
                    sample_weight = checks.valid_only_if(is_valid, sample_weight)
                    is_valid &= checks.are_all_finite([sample_weight])
                is_valid &= checks.are_all_finite([losses])
                for variable, before in counters:
                    variable.assign(tf.where(is_valid, variable.value, before))
        if mask is not None:
            set_mask(losses, mask)
        return super().__call__(losses, losses, sample_weight)

    def _checked_weights(
        self,
        sample_weight: TensorLike,
        features: tf.Tensor,
        counted: tf.Tensor | None,
        raises: bool,
    ) -> tf.Tensor:
        """Returns weights `[batch, ...]`, 0 for the examples that do not count.

        If `raises`, they are checked to be finite.
        """
        message = (
            f"The `sample_weight` of {type(self).__name__} must be finite (Keras makes it from "
            "`class_weight` if that is given). Give examples that must not count the label -1"
        )
        weights = per_example(sample_weight, features, self.dtype)
        if counted is not None:
            weights = tf.where(tf.cast(counted, "bool"), weights, 0)
        return checks.finite(weights, message) if raises else weights

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the losses `y_pred`, from `__call__`; Keras applies weights and reduction."""
        return y_pred

    def get_config(self) -> Config:
        config = super().get_config()
        if self.ignore_class is not None:  # a subclass need not have this argument
            config["ignore_class"] = self.ignore_class
        return config

    @classmethod
    def from_config(cls, config: Config) -> Self:
        if isinstance(config.get("class_weights"), str):
            config = {**config, "class_weights": unpack(config["class_weights"], "<f4")}
        return cls(**config)


def losses_of(loss: type[TaggedLoss[Any]], step: Step, options: dict[str, Any]) -> tf.Tensor:
    """Returns the losses of a step, `[B]`, by a loss of a class with some arguments.

    It raises a ValueError for arguments that only Keras losses have, and for a step that the
    loss cannot use.
    """
    unused = sorted(LossOptions.__annotations__.keys() & options.keys())
    if unused:
        raise ValueError(
            f"A function of a step has no argument {unused}: it returns one loss per example, "
            "and padding is -1. Reduce the result, and replace other padding in the labels."
        )
    if not isinstance(step, loss.step_class):
        raise ValueError(
            f"{loss.__name__} needs a step of a {loss.step_class.given_by}. Received: one of a "
            f"{type(step).given_by}. Use {type(step).losses_to_take}."
        )
    if step.labels.weights is not None and not loss.takes_soft_targets:
        raise ValueError(
            f"{loss.__name__} does not use soft targets, but the labels of the step are a "
            "SparseTensor. Pass class ids, or use a loss that takes soft targets."
        )
    return loss(**options).of_step(step)


def _check_class_weight(y_true: TensorLike) -> None:
    """Raises a ValueError if `class_weight` of `fit` is used with several labels per example.

    Keras would silently use the weight of the column with the largest value.
    """
    shape = tf.TensorShape(y_true.shape)
    if shape.rank in (None, 0, 1) or shape[-1] == 1 or not running_step().has_class_weight:
        return
    raise ValueError(
        "`class_weight` needs one label per example, labels of shape [batch]. Received labels "
        f"of shape {shape}: Keras would take the number of a column as the class. Pass "
        "`class_weights` to the loss, such as DecoupledSoftmaxLoss(class_weights=weights), or "
        "`sample_weight` to `fit`."
    )


def softmax_cross_entropy(
    log_partition: tf.Tensor, true_logits: tf.Tensor, has_label: tf.Tensor
) -> tf.Tensor:
    """Returns the cross entropy of a softmax, `[B]`; each label has the target `1 / #labels`.

    `log_partition - sum(true_logits) / #labels`, where `log_partition` is the log of the sum
    of `exp(logit)` over all classes. 0 for an example without labels.

    Args:
        log_partition: Float `[B]`.
        true_logits: Float `[B, L]`.
        has_label: Bool `[B, L]`, False at padding.
    """
    weights = target_weights(has_label, true_logits.dtype)
    # With `keepdims`, the gradient does not wait for a GPU, as in `row_sums`.
    terms = tf.where(has_label, weights * true_logits, 0)
    target = tf.squeeze(tf.reduce_sum(terms, axis=-1, keepdims=True), axis=-1)
    return tf.where(tf.reduce_any(has_label, axis=-1), log_partition - target, 0)


def target_weights(has_label: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Returns the target probability of each label, `1 / #labels`: `[B, L]`, 0 at padding."""
    present = tf.cast(has_label, dtype)
    return tf.math.divide_no_nan(present, tf.reduce_sum(present, axis=-1, keepdims=True))


class CrossEntropy(CrossEntropyArguments):
    """The cross entropy of a softmax with smoothed, soft or weighted targets.

    The loss of an example with logits o is

        W (log Z + p (log Z)^2) - (1 - e) sum_y w_y t_y o_y - u mean_c o_c

    where Z is the sum of `exp(o_c)` over all classes c, y runs over the labels, `t_y` are their
    targets and `w_y` their class weights. e is `label_smoothing`, in [0, 1), and p is
    `log_partition_penalty`, at least 0. The targets are `1 / #labels`, or soft targets with a
    sum T <= 1. The rest, `1 - T`, is spread uniformly over all classes, as for a teacher of
    which only the best k probabilities are known. So `u = e sum_y w_y t_y + 1 - T`, and
    `W = sum_y w_y t_y + 1 - T`.

    Class weights, see `SoftmaxLoss`, are float `[num_classes]`, at least 0 and not all 0. They
    are not normalized: the mean over a batch divides by the number of examples. With one label
    per example, they equal `class_weight` in `fit`, and label smoothing equals that of
    `keras.losses.CategoricalCrossentropy`. The penalty is the "z-loss" of PaLM (Chowdhery et
    al. 2022, section 5, with a factor of 1e-4), unlike `ZLoss`, by de Brebisson and Vincent.

    A sampled loss estimates the mean logit without bias from the labels and the sampled classes
    s, each divided by its expected count:

        mean_c o_c ~ (sum_y o_y + sum_s o_s / E[count_s]) / num_classes

    Its penalty uses the estimated log Z, so it is biased. `evaluate` reports the loss with
    exact values of both. An argument out of range raises a ValueError.
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        log_partition_penalty: float = 0.0,
        class_weights: TensorLike | None = None,
    ) -> None:
        super().__init__(label_smoothing, log_partition_penalty, class_weights)
        if self.class_weights is not None:
            with tf.init_scope():
                self._weights = tf.constant(self.class_weights)

    def weights_of(self, labels: tf.Tensor, num_classes: int) -> tf.Tensor | None:
        """Returns the weights of labels, float32 `[B, L]`, 0 at padding; None if all are 1."""
        if self.class_weights is None:
            return None
        self.require_weight_per_class(num_classes)
        weights = tf.gather(self._weights, tf.maximum(labels, 0))
        return tf.where(labels >= 0, weights, 0)

    def exact(
        self, step: Step, compute_dtype: str = "float32", ranking: str = "logit"
    ) -> tf.Tensor:
        """Returns the loss of each example, `[B]`, by one pass; see `Step.statistics`."""
        found, labels = step.statistics(compute_dtype, ranking), step.labels
        scores = found.log_partition, found.true_logits, labels.ids, step.num_classes
        return self.of_scores(*scores, lambda: step.mean_logits(ranking), labels.weights)

    def of_candidates(
        self,
        candidates: Candidates,
        log_partition: tf.Tensor,
        true_logits: tf.Tensor,
        function: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
    ) -> tf.Tensor:
        """Returns the loss of each example, `[B]`, with an estimated log Z, `[B]`.

        `function` maps a logit to its value in this softmax, as in `true_logits`, `[B, L]`.
        """
        return self.of_scores(
            log_partition,
            true_logits,
            candidates.labels,
            candidates.num_classes,
            lambda: candidates.sum_over_classes(function) / candidates.num_classes,
            candidates.label_weights,
        )

    def of_scores(
        self,
        log_partition: tf.Tensor,
        true_logits: tf.Tensor,
        labels: tf.Tensor,
        num_classes: int,
        mean_logits: Callable[[], tf.Tensor],
        soft_targets: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the loss of each example, `[B]`, from the scores of a given softmax.

        `log_partition` is log Z, `[B]`; `true_logits`, `labels` and `soft_targets` are `[B,
        L]`, the targets None for equal ones. `mean_logits` returns the mean over all classes.
        """
        has_label, class_weights = labels >= 0, None
        if self.class_weights is not None:
            class_weights = self.weights_of(labels, num_classes)
        smoothing, penalty = self.label_smoothing, self.log_partition_penalty
        if soft_targets is None and class_weights is None and not smoothing and not penalty:
            return softmax_cross_entropy(log_partition, true_logits, has_label)
        targets, rest = soft_targets, tf.zeros_like(log_partition)
        if targets is None:
            targets = target_weights(has_label, true_logits.dtype)
        else:
            rest = tf.maximum(1 - tf.reduce_sum(targets, axis=-1), 0)
        if class_weights is not None:
            targets *= class_weights
        of_labels = tf.reduce_sum(targets, axis=-1)
        true_part = row_sums(tf.where(has_label, targets * true_logits, 0))
        losses = (of_labels + rest) * log_partition - (1 - smoothing) * true_part
        if penalty:
            losses += (of_labels + rest) * penalty * log_partition**2
        if smoothing or soft_targets is not None:
            losses -= (smoothing * of_labels + rest) * mean_logits()
        return tf.where(tf.reduce_any(has_label, axis=-1), losses, 0)


_WHAT_COUNTS_ARE = {
    DRAWS: "it may draw a class several times, so its expected counts are not probabilities.",
    NONE: "it searches for classes, whose expected counts are not known.",
}


class ProductOptions(LossOptions, total=False):
    """The arguments of sampled losses for which a label is never a negative."""

    compute_dtype: str


class SampledOptions(ProductOptions, total=False):
    """The arguments that other sampled losses have, see `SampledLoss`."""

    remove_accidental_hits: bool


class SampledLoss(TaggedLoss[SampledStep]):
    """A loss over the labels of an example and the classes that the layer's sampler draws.

    A subclass defines `candidate_losses`, a function of the raw logits of the candidates and
    the log of their expected counts. Some samplers return hard classes for each example (a
    head) and a sample that all examples share (a tail). A class of the tail that is also in the
    head then has no effect. In `evaluate`, the loss reports the exact softmax loss over all
    classes, unless a subclass overrides `exact_losses`.

    Args:
        remove_accidental_hits: Whether a drawn class that is a label of the example has no
            effect on that example. Default True: a label must not be its own negative.
        compute_dtype: "float32" or "bfloat16", see `SoftmaxLoss`. "bfloat16" rounds features,
            embeddings of the classes that all examples share, and the gradients of their
            logits. The logits of labels and of the hard classes of each example stay float32.

    The other arguments are those of `TaggedLoss`.

    In a custom training loop, call the model with `training=True`. Otherwise the loss computes
    the exact loss over all classes, in O(num_classes) time, and warns once.

    Raises:
        ValueError: If `remove_accidental_hits` is not a bool, or `compute_dtype` is another
            string; in training, if the `LargeOutput` has no sampler, or the loss does not
            accept the sampler's expected counts.

    Attributes:
        counts_taken: Kinds of expected counts that the loss accepts; see `Sampler.counts_are`.
        what_to_take: A sentence for the error message: which samplers to use instead.
        cross_entropy: The `CrossEntropy` that `exact_losses` reports.
    """

    step_class = SampledStep
    samples = changes_some_rows = True
    counts_taken: tuple[str, ...] = COUNTS
    what_to_take = ""
    cross_entropy = CrossEntropy()

    def __init__(
        self,
        remove_accidental_hits: bool = True,
        compute_dtype: str = "float32",
        **options: Unpack[LossOptions],
    ) -> None:
        super().__init__(**options)
        self.remove_accidental_hits = boolean("remove_accidental_hits", remove_accidental_hits)
        self.compute_dtype = one_of("compute_dtype", compute_dtype, COMPUTE_DTYPES)

    def candidate_losses(self, candidates: Candidates) -> tf.Tensor:
        """Returns the loss of each example, float32 `[B]`, from its scored `Candidates`.

        Values of examples without labels have no effect.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `candidate_losses`.")

    def of_step(self, step: SampledStep) -> tf.Tensor:
        if step.training is None:
            warnings.warn(
                f"{type(self).__name__} was given logits of a model call without the "
                "argument `training`, so it computes the exact loss over all "
                f"{step.num_classes} classes. In a custom training loop, call the model with "
                "training=True, or use the `step` of the layer. To get the exact loss, "
                "call it with training=False.",
                stacklevel=1,  # one place for all calls, so that a loop warns only once
            )
        if not step.training:
            return self.exact_losses(step)
        candidates = self.candidates(step)
        losses = self.candidate_losses(candidates)
        return tf.where(tf.reduce_any(candidates.has_label, axis=-1), losses, 0)

    def candidates(self, step: SampledStep, explicit: tf.Tensor | None = None) -> Candidates:
        """Scores the labels and the sampled classes of a step, for `candidate_losses`.

        A subclass can pass `explicit`, int64 `[n]`: distinct classes to score for every example
        in addition. Raises a ValueError if the step has no sample, or the loss cannot use its
        expected counts.
        """
        who = type(self).__name__
        if step.sample is None:
            raise ValueError(
                f"{who} scores classes that a sampler draws, but layer '{step.layer_name}' has "
                "sampler=None. Give `LargeOutput` a sampler, e.g. "
                "sampler=tf_largeout.samplers.UniformSampler(1024), or use `SoftmaxLoss`. A "
                "model from `join_models` has no sampler: fine-tune it with `SoftmaxLoss`, or "
                "train the models before you join them."
            )
        if step.counts_are not in self.counts_taken:
            raise ValueError(
                f"{who} cannot be used with the {step.sampler_name} of layer "
                f"'{step.layer_name}': {_WHAT_COUNTS_ARE[step.counts_are]} {self.what_to_take}"
            )
        return step.candidates(self.remove_accidental_hits, explicit, self.compute_dtype)

    def exact_losses(self, step: SampledStep) -> tf.Tensor:
        """Returns the losses in `evaluate`, `[B]`: those of a softmax, and 0 without labels."""
        return self.cross_entropy.exact(step)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "remove_accidental_hits": self.remove_accidental_hits,
            "compute_dtype": self.compute_dtype,
        }
