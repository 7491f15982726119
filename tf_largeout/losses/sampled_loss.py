"""The base class of the losses that score the labels and a sample of classes."""

import warnings

import tensorflow as tf
from typing_extensions import Unpack

from tf_largeout.arguments import boolean, one_of
from tf_largeout.losses.cross_entropy import CrossEntropy
from tf_largeout.losses.tagged_loss import COMPUTE_DTYPES, LossOptions, TaggedLoss
from tf_largeout.sampled_values import COUNTS, DRAWS, NONE
from tf_largeout.steps.candidates import Candidates
from tf_largeout.steps.step import SampledStep
from tf_largeout.types import Config

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


class SampledLoss(TaggedLoss):
    """A loss over the labels of an example and the classes that the layer's sampler draws.

    A subclass defines `candidate_losses`, a function of the raw logits of the candidates and
    the log of their expected counts. Some samplers return hard classes for each example (a
    head) and a sample that all examples share (a tail). A class of the tail that is also in the
    head then has no effect. In `evaluate`, the loss reports the exact softmax loss over all
    classes, unless a subclass overrides `exact_losses`.

    Args:
        remove_accidental_hits: Whether a drawn class that is a label of the example has no
            effect on that example. Default True: a label must not be its own negative.
        compute_dtype: "float32" or "bfloat16". With "bfloat16", the products with the classes
            that all examples share are computed from rounded numbers: features, embeddings of
            these classes and gradients of their logits are rounded to bfloat16. Sums,
            variables, gradients, and the logits of labels and of the hard classes of each
            example stay float32. The relative error of a product is at most about 2^-8.
            Processors with AMX multiply bfloat16 numbers several times as fast as float32
            numbers. On other processors, the rounding is the same, but the products take longer
            than in float32. `evaluate` always uses float32. GPUs do not support "bfloat16".

    The other arguments are those of `TaggedLoss`.

    In a custom training loop, call the model with `training=True`. Otherwise the loss computes
    the exact loss over all classes, in O(num_classes) time, and warns once.

    Raises:
        ValueError: If `remove_accidental_hits` is not a bool, or `compute_dtype` is another
            string; in training, if the `LargeOutput` has no sampler, or the loss does not
            accept the sampler's expected counts.
        tf.errors.InvalidArgumentError: In training, if `compute_dtype` is "bfloat16" on a GPU.

    Attributes:
        counts_taken: Kinds of expected counts that the loss accepts; see `Sampler.counts_are`.
        what_to_take: A sentence for the error message: which samplers to use instead.
    """

    step_class = SampledStep
    samples = changes_some_rows = True
    counts_taken: tuple[str, ...] = COUNTS
    what_to_take = ""

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
        """Returns the loss of each example, from the scores of its candidates.

        Args:
            candidates: The `tf_largeout.losses.Candidates`: scored labels and drawn classes of
                `B` examples.

        Returns:
            float32 `[B]`; values of examples without labels have no effect.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `candidate_losses`.")

    def explicit_classes(self, labels: tf.Tensor) -> tf.Tensor | None:
        """Returns classes to score for every example in addition; None, the default, for none.

        Args:
            labels: int64 `[B, L]`, padded with -1.

        Returns:
            int64 `[n]`, distinct, or None.
        """
        return None

    def of_step(self, step: SampledStep) -> tf.Tensor:
        if not step.training:
            self._warn_of_unknown_training(step)
            return self.exact_losses(step)
        candidates = self.candidates(step)
        losses = self.candidate_losses(candidates)
        return tf.where(tf.reduce_any(candidates.has_label, axis=-1), losses, 0)

    def candidates(self, step: SampledStep) -> Candidates:
        """Scores the labels and the sampled classes of a step, for `candidate_losses`.

        Raises:
            ValueError: If the step has no sample, or the loss cannot use its expected counts.
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
        explicit = self.explicit_classes(step.labels.ids)
        return step.candidates(self.remove_accidental_hits, explicit, self.compute_dtype)

    def exact_losses(self, step: SampledStep) -> tf.Tensor:
        """Returns what `evaluate` reports: by default the exact softmax loss.

        Args:
            step: The step of `B` examples, which does not train.

        Returns:
            float32 `[B]`, 0 for an example without labels.
        """
        return CrossEntropy().exact(step)

    def _warn_of_unknown_training(self, step: SampledStep) -> None:
        if step.training is None:
            warnings.warn(
                f"{type(self).__name__} was given logits of a model call without the "
                "argument `training`, so it computes the exact loss over all "
                f"{step.num_classes} classes. In a custom training loop, call the model with "
                "training=True. To get the exact loss, call it with training=False.",
                stacklevel=1,  # one place for all calls, so that a loop warns only once
            )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "remove_accidental_hits": self.remove_accidental_hits,
            "compute_dtype": self.compute_dtype,
        }
