"""The base class of the losses that score the labels and a sample of classes."""

import warnings
from typing import Any

import tensorflow as tf

from tf_largeout.arguments import boolean, one_of
from tf_largeout.losses.cross_entropy import exact_cross_entropy
from tf_largeout.losses.tagged_loss import COMPUTE_DTYPES, TaggedLoss
from tf_largeout.sampled_values import COUNTS, DRAWS, NONE
from tf_largeout.tags.candidates import Candidates
from tf_largeout.tags.lazy_logits import LazyLogits
from tf_largeout.types import Config, DTypeLike

_WHAT_COUNTS_ARE = {
    DRAWS: "it may draw a class several times, so its expected counts are no probabilities.",
    NONE: "it searches for classes, whose expected counts nobody knows.",
}


class SampledLoss(TaggedLoss):
    """A loss over the labels of a row and the classes that the layer's sampler draws.

    A subclass writes `candidate_losses`: what it makes of the raw logits of the candidates and
    the log of their expected counts. Where the sampler gives each row hard classes of its own
    (a head) and a shared sample (a tail), a class of the tail that is in the row's head has no
    effect on that row. In `evaluate` it reports the exact softmax loss over all classes, or
    what a subclass writes as `exact_losses`.

    Args:
        remove_accidental_hits: Whether a drawn class that is a label of the row has no
            effect on that row. Default True: a label must not be its own negative.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type of the loss that is returned, as in `keras.losses.Loss`.
        compute_dtype: "float32", or "bfloat16": features, embeddings of the classes that the
            batch shares and, in the gradient, what their logits pass back are rounded to the
            nearest bfloat16 before they are multiplied; sums, variables and gradients are
            float32, and so are the logits of labels and of classes of a row's own. Each product
            is off by about 2^-8 of itself at most. Processors with AMX multiply so several
            times as fast; others round alike, but take longer than in float32. For training
            alone: `evaluate` is exact in float32. Not on a GPU.

    In a training loop of your own, call the model with `training=True`: without, the loss is
    the exact one, in O(num_classes) time, and says so once.

    Raises:
        ValueError: If `remove_accidental_hits` is no bool, or `compute_dtype` is neither; in
            training, if the `LargeOutput` has no sampler, or one whose expected counts the loss
            cannot take.
        tf.errors.InvalidArgumentError: In training, if `compute_dtype` is "bfloat16" on a GPU.

    Attributes:
        counts_taken: What the expected counts of a sampler may be, see `Sampler.counts_are`.
        what_to_take: In the error where they are something else, the samplers to take.
    """

    tag_class = LazyLogits
    counts_taken: tuple[str, ...] = COUNTS
    what_to_take = ""

    def __init__(
        self,
        remove_accidental_hits: bool = True,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: DTypeLike | None = None,
        compute_dtype: str = "float32",
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.remove_accidental_hits = boolean("remove_accidental_hits", remove_accidental_hits)
        self.compute_dtype = one_of("compute_dtype", compute_dtype, COMPUTE_DTYPES)

    def candidate_losses(self, candidates: Candidates) -> tf.Tensor:
        """The loss of each row, from the scores of its candidates.

        Args:
            candidates: Labels and drawn classes of `B` rows, scored: an instance of
                `tf_largeout.tags.candidates.Candidates`.

        Returns:
            float32 `[B]`; what it is for a row without labels has no effect.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `candidate_losses`.")

    def explicit_classes(self, labels: tf.Tensor) -> tf.Tensor | None:
        """Classes that are scored for every row, whatever is drawn; None, the default: none.

        Args:
            labels: int64 `[B, L]`, padded with -1.

        Returns:
            int64 `[n]`, distinct, or None.
        """
        return None

    def row_losses(self, tag: LazyLogits, labels: tf.Tensor) -> tf.Tensor:
        candidates = tag.draw_candidates(
            labels,
            self.remove_accidental_hits,
            type(self).__name__,
            self.explicit_classes(labels),
            self.compute_dtype,
        )
        self._check_counts(candidates, tag.layer)
        losses = self.candidate_losses(candidates)
        return tf.where(tf.reduce_any(candidates.has_label, axis=-1), losses, 0)

    def evaluation_losses(self, tag: LazyLogits, labels: tf.Tensor) -> tf.Tensor:
        """`exact_losses`, with a warning where a loop does not say that it evaluates."""
        if tag.training is None:
            warnings.warn(
                f"{type(self).__name__} was given logits of a call that did not say whether it "
                f"trains, and is an exact loss over all "
                f"{tag.num_classes} classes. In a training loop of your own call the "
                "model with training=True; where the exact loss is meant, with training=False.",
                stacklevel=1,  # here, so that a loop is told once
            )
        return self.exact_losses(tag, labels)

    def exact_losses(self, tag: LazyLogits, labels: tf.Tensor) -> tf.Tensor:
        """What `evaluate` reports: the exact softmax loss, so that all sampled losses compare.

        Args:
            tag: The `LazyLogits` of `B` rows.
            labels: int64 `[B, L]`, padded with -1.

        Returns:
            float32 `[B]`, 0 for a row without labels.
        """
        return exact_cross_entropy(tag, labels)

    def _check_counts(self, candidates: Candidates, layer: Any) -> None:
        if candidates.counts_are not in self.counts_taken:
            raise ValueError(
                f"{type(self).__name__} cannot be used with the "
                f"{type(layer.sampler).__name__} of layer '{layer.name}': "
                f"{_WHAT_COUNTS_ARE[candidates.counts_are]} {self.what_to_take}"
            )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "remove_accidental_hits": self.remove_accidental_hits,
            "compute_dtype": self.compute_dtype,
        }
