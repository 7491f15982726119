"""The base class of the losses that score the labels and a sample of classes."""

import warnings

import tensorflow as tf

from tf_largeout.candidates import Candidates
from tf_largeout.lazy_logits import LazyLogits
from tf_largeout.losses.cross_entropy import exact_cross_entropy
from tf_largeout.losses.tagged_loss import TaggedLoss
from tf_largeout.types import Config, DTypeLike


class SampledLoss(TaggedLoss):
    """A loss over the labels of a row and the classes that the layer's sampler draws.

    A subclass writes `candidate_losses`: what it makes of the raw logits of the candidates and
    the log of their expected counts. Where the sampler gives each row hard classes of its own
    (a head) and a shared sample (a tail), a class of the tail that is in the row's head has no
    effect on that row. In `evaluate` it reports the exact softmax loss over all classes.

    Args:
        remove_accidental_hits: Whether a drawn class that is a label of the row has no
            effect on that row. Default True: a label must not be its own negative.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type of the loss that is returned, as in `keras.losses.Loss`.

    In a training loop of your own, call the model with `training=True`: without, the loss is
    the exact softmax loss, in O(num_classes) time, and says so once.

    Raises:
        ValueError: In training, if the `LargeOutput` has no sampler.
    """

    tag_class = LazyLogits

    def __init__(
        self,
        remove_accidental_hits: bool = True,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.remove_accidental_hits = remove_accidental_hits

    def candidate_losses(self, candidates: Candidates) -> tf.Tensor:
        """The loss of each row, from the scores of its candidates.

        Args:
            candidates: Labels and drawn classes of `B` rows, scored: an instance of
                `tf_largeout.candidates.Candidates`.

        Returns:
            float32 `[B]`; what it is for a row without labels has no effect.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `candidate_losses`.")

    def row_losses(self, tag: LazyLogits, labels: tf.Tensor) -> tf.Tensor:
        candidates = tag.draw_candidates(
            labels, self.remove_accidental_hits, asked_by=type(self).__name__
        )
        losses = self.candidate_losses(candidates)
        return tf.where(tf.reduce_any(candidates.has_label, axis=-1), losses, 0)

    def evaluation_losses(self, tag: LazyLogits, labels: tf.Tensor) -> tf.Tensor:
        """The exact softmax loss over all classes, so that all sampled losses compare."""
        if tag.training is None:
            warnings.warn(
                f"{type(self).__name__} was given logits of a call that did not say whether it "
                "trains, and is the exact softmax loss over all "
                f"{tag.num_classes} classes. In a training loop of your own call the "
                "model with training=True; where the exact loss is meant, with training=False.",
                stacklevel=1,  # here, so that a loop is told once
            )
        return exact_cross_entropy(tag, labels)

    def get_config(self) -> Config:
        return {**super().get_config(), "remove_accidental_hits": self.remove_accidental_hits}
