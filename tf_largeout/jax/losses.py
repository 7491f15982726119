"""The losses of a `LargeOutput` on JAX.

Formulas and arguments are those on TensorFlow, whose docstrings explain them.
"""

from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras.src.backend import set_keras_mask

from tf_largeout.arguments import (
    CrossEntropyArguments,
    boolean,
    int64_or_none,
    one_of,
    real_number,
    unpack,
)
from tf_largeout.jax import blocks
from tf_largeout.jax.steps import (
    Candidates,
    Labels,
    Step,
    check_range,
    frame_of_keras,
    keeps_weights,
    per_example,
    tag_of,
)
from tf_largeout.keras_names import snake_case
from tf_largeout.wrong_arguments import OF_LOSSES, refuse_wrong_arguments_of

_register = keras.saving.register_keras_serializable(package="tf_largeout")


class TaggedLoss(keras.losses.Loss):
    """Base of the losses, which use the `Step` of an output layer, not its logits.

    A subclass defines `of_step`. Labels out of range raise a ValueError in a loss that is
    called directly, and in the first `fit` or `evaluate` after `compile` if `y` is a NumPy
    array. A compiled step cannot raise errors: there such labels, and features that are not
    finite, give a loss of NaN. The optimizers of this package then change nothing.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> "TaggedLoss":
        refuse_wrong_arguments_of(cls, kwargs, OF_LOSSES)
        return super().__new__(cls)

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
    ) -> None:
        name = name or snake_case(type(self).__name__)
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.ignore_class = int64_or_none("ignore_class", ignore_class)

    def of_step(self, step: Step) -> jax.Array:
        """Returns the loss of each example, float32 `[B]`; 0 without labels."""
        raise NotImplementedError(f"{type(self).__name__} must define `of_step`.")

    @keeps_weights
    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> jax.Array:
        tag = tag_of(y_pred, type(self).__name__)
        if tag is None:  # Keras infers shapes
            return super().__call__(jnp.zeros(y_pred.shape[:-1]), jnp.zeros(y_pred.shape[:-1]))
        tag.ignore_class = self.ignore_class
        labels = tag.labels(y_true)
        _check_arguments_of_fit(labels, tag.head.num_classes, self.ignore_class)
        counted, step = tag.counted(labels), tag.step(labels)
        losses = self.of_step(step)
        is_valid = labels.is_valid & jnp.isfinite(step.queries).all()
        losses = jnp.where(labels.counted, losses, 0)
        # A factor, so that gradients are NaN too.
        losses = (losses * jnp.where(is_valid, 1, jnp.nan)).reshape(tag.leading)
        if sample_weight is not None:
            weights = per_example(sample_weight, tag.leading)
            sample_weight = jnp.where(counted, weights.astype(jnp.float32), 0)
        set_keras_mask(losses, counted | ~is_valid)
        return super().__call__(losses, losses, sample_weight)

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        """Returns the losses `y_pred`, from `__call__`; Keras applies weights and reduction."""
        return y_pred

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if self.ignore_class is not None:
            config["ignore_class"] = self.ignore_class
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TaggedLoss":
        if isinstance(config.get("class_weights"), str):
            config = {**config, "class_weights": unpack(config["class_weights"], "<f4")}
        return cls(**config)


def _check_arguments_of_fit(labels: Labels, num_classes: int, ignore_class: int | None) -> None:
    """Raises a ValueError for a wrong `class_weight` or wrong labels that Keras was given.

    A step cannot check labels. But when it is traced, all labels are in the argument `y` of
    `fit` or `evaluate`, if this is a NumPy array.
    """
    frame = frame_of_keras()
    given = {} if frame is None else frame.f_locals
    num_labels, y = labels.ids.shape[1], given.get("y")
    if num_labels > 1 and given.get("class_weight") is not None:
        # Keras would take the number of a column as the class.
        raise ValueError(
            "`class_weight` needs one label per example, labels of shape [batch]. Received "
            f"{num_labels} labels per example. Pass `class_weights` to the loss."
        )
    if isinstance(y, np.ndarray) and y.size % num_labels == 0:
        check_range(y.reshape(-1, num_labels), num_classes, ignore_class)


class CrossEntropy(CrossEntropyArguments):
    """The cross entropy of a softmax with smoothed or weighted targets.

    `W (log Z + p (log Z)^2) - (1 - e) sum_y w_y t_y o_y - e W mean_c o_c` for labels y with
    targets `t_y = 1 / #labels` and class weights `w_y`, and `W = sum_y w_y t_y`. e is
    `label_smoothing`, p is `log_partition_penalty`.
    """

    def weights_of(self, labels: jax.Array, num_classes: int) -> jax.Array | float:
        """Returns the weights of labels, `[B, L]`, or 1."""
        if self.class_weights is None:
            return 1.0
        self.require_weight_per_class(num_classes)
        return jnp.asarray(self.class_weights)[jnp.maximum(labels, 0)]

    def of_scores(
        self,
        log_partition: jax.Array,
        true_logits: jax.Array,
        labels: jax.Array,
        num_classes: int,
        mean_logits: Any,
    ) -> jax.Array:
        """Returns the loss of each example, `[B]`; `mean_logits` is a function."""
        targets = target_weights(labels) * self.weights_of(labels, num_classes)
        total = targets.sum(axis=1)
        of_labels = jnp.where(labels >= 0, targets * true_logits, 0).sum(axis=1)
        losses = total * log_partition - (1 - self.label_smoothing) * of_labels
        if self.log_partition_penalty:
            losses += total * self.log_partition_penalty * log_partition**2
        if self.label_smoothing:
            losses -= self.label_smoothing * total * mean_logits()
        return losses

    def exact(self, step: Step) -> jax.Array:
        """Returns the exact loss of each example, `[B]`, by a pass over all classes."""
        labels, mean = step.labels.ids, None
        if step.training:
            log_partition, mean = step.log_partition_and_mean()
            true_logits = step.head.logits(step.queries, labels, lookup=False)
        else:
            log_partition, true_logits, _ = step.statistics()
            if self.label_smoothing:
                _, mean = blocks.log_partition_and_mean(step.queries, *step.head.classes)
        scores = log_partition, true_logits, labels, step.head.num_classes
        return self.of_scores(*scores, lambda: mean)


def target_weights(labels: jax.Array) -> jax.Array:
    """Returns `1 / #labels` for labels, `[B, L]`, 0 at padding."""
    present = (labels >= 0).astype(jnp.float32)
    return present / jnp.maximum(present.sum(axis=1, keepdims=True), 1)


@_register
class SoftmaxLoss(TaggedLoss):
    """Exact softmax cross entropy over all classes, in blocks, in float32."""

    def __init__(
        self,
        compute_dtype: str = "float32",
        label_smoothing: float = 0.0,
        log_partition_penalty: float = 0.0,
        class_weights: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.compute_dtype = one_of("compute_dtype", compute_dtype, ["float32"])
        self.cross_entropy = CrossEntropy(label_smoothing, log_partition_penalty, class_weights)

    def of_step(self, step: Step) -> jax.Array:
        return self.cross_entropy.exact(step)

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), **self.cross_entropy.get_config()}
        return config | {"compute_dtype": self.compute_dtype}


class SampledLoss(TaggedLoss):
    """Base of the losses over the labels and the classes that the sampler draws.

    In `evaluate`, and in any step that does not train, they report the exact softmax loss.
    """

    cross_entropy = CrossEntropy()

    def __init__(
        self,
        remove_accidental_hits: bool = True,
        compute_dtype: str = "float32",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.remove_accidental_hits = boolean("remove_accidental_hits", remove_accidental_hits)
        self.compute_dtype = one_of("compute_dtype", compute_dtype, ["float32", "bfloat16"])

    def candidate_losses(self, candidates: Candidates) -> jax.Array:
        """Returns the loss of each example, float32 `[B]`."""
        raise NotImplementedError(f"{type(self).__name__} must define `candidate_losses`.")

    def of_step(self, step: Step) -> jax.Array:
        if not step.training:
            return self.cross_entropy.exact(step)
        if step.head.sampler is None:
            raise ValueError(
                f"{type(self).__name__} scores classes that a sampler draws, but layer "
                f"'{step.head.name}' has sampler=None. Give `LargeOutput` a sampler, e.g. "
                "sampler=tf_largeout.samplers.UniformSampler(1024), or use `SoftmaxLoss`."
            )
        found = step.candidates(self.remove_accidental_hits, self.compute_dtype)
        return self.candidate_losses(found)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "remove_accidental_hits": self.remove_accidental_hits,
            "compute_dtype": self.compute_dtype,
        }


@_register
class SampledSoftmaxLoss(SampledLoss):
    """Sampled softmax: cross entropy over the labels and the drawn classes.

    `-o'_y + log(exp(o'_y) + sum_s exp(o_s) / E[count_s])` (Blanc & Rendle 2018, eq. 2), with
    `o'_y = o_y`, or `o_y - log E[count_y]` with `correct_positive`, as in `tf.nn`. Several
    labels have targets `1 / #labels`, and the sum contains each. See `CrossEntropy`.
    """

    def __init__(
        self,
        correct_positive: bool = False,
        label_smoothing: float = 0.0,
        log_partition_penalty: float = 0.0,
        class_weights: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.correct_positive = boolean("correct_positive", correct_positive)
        self.cross_entropy = CrossEntropy(label_smoothing, log_partition_penalty, class_weights)
        if correct_positive and (label_smoothing or log_partition_penalty):
            raise ValueError(
                "Label smoothing and the penalty of log Z need correct_positive=False, to "
                "estimate the sum over all classes."
            )

    def candidate_losses(self, candidates: Candidates) -> jax.Array:
        labels, true_logits = candidates.labels, candidates.true_logits
        if self.correct_positive:
            true_logits = true_logits - candidates.true_log_counts
        of_labels = jnp.where(labels >= 0, true_logits, -jnp.inf)
        scores = jnp.concatenate([of_labels, candidates.corrected_logits()], axis=1)
        log_partition = jax.nn.logsumexp(scores, axis=1)
        of_step = log_partition, true_logits, labels, candidates.num_classes
        return self.cross_entropy.of_scores(*of_step, candidates.mean_logits)

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), **self.cross_entropy.get_config()}
        return config | {"correct_positive": self.correct_positive}


@_register
class DecoupledSoftmaxLoss(SampledLoss):
    """One softmax per label, over that label and the drawn classes (Gupta et al. 2024).

    `L^-label_power sum_y -log(exp(o_y) / (exp(o_y) + sum_s exp(o_s) / E[count_s]))` for L
    labels y. Class weights multiply the terms of the labels.
    """

    def __init__(
        self, label_power: float = 0.5, class_weights: Any = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self.label_power = real_number("label_power", label_power, least=0, most=1)
        self.cross_entropy = CrossEntropy(class_weights=class_weights)

    def candidate_losses(self, candidates: Candidates) -> jax.Array:
        labels = candidates.labels
        log_sum = jax.nn.logsumexp(candidates.corrected_logits(), axis=1, keepdims=True)
        terms = jax.nn.softplus(log_sum - candidates.true_logits)
        terms = terms * self.cross_entropy.weights_of(labels, candidates.num_classes)
        number = jnp.maximum((labels >= 0).sum(axis=1), 1).astype(jnp.float32)
        return jnp.where(labels >= 0, terms, 0).sum(axis=1) * number**-self.label_power

    def get_config(self) -> dict[str, Any]:
        weights = self.cross_entropy.get_config()["class_weights"]
        own = {"class_weights": weights, "label_power": self.label_power}
        return {**super().get_config(), **own}


@_register
class NCELoss(SampledLoss):
    """Noise-contrastive estimation (Gutmann & Hyvarinen 2010), equal to `tf.nn.nce_loss`.

    `-log sigmoid(o_y - log E[count_y]) - sum_s log sigmoid(-(o_s - log E[count_s]))`. Several
    labels have targets `1 / #labels`. Initialize the biases to `-log(num_classes)`.
    """

    def candidate_losses(self, candidates: Candidates) -> jax.Array:
        labels = candidates.labels
        logits = candidates.true_logits - candidates.true_log_counts
        terms = jax.nn.softplus(logits) - target_weights(labels) * logits
        of_labels = jnp.where(labels >= 0, terms, 0).sum(axis=1)
        return of_labels + jax.nn.softplus(candidates.corrected_logits()).sum(axis=1)
