"""The base class of the losses that score the labels and a sample of classes."""

import warnings

import tensorflow as tf

from tf_largeout.candidates import Negatives, score_candidates
from tf_largeout.losses.large_output_loss import LargeOutputLoss


class SampledLoss(LargeOutputLoss):
    """A loss over the labels of a row and the classes that the layer's sampler draws.

    Scores them, corrects the logits by the log of the expected counts (the only place where
    that is done) and masks accidental hits. Where the sampler gives each row hard classes of
    its own (a head) and a shared sample (a tail), a class of the tail that is in the row's
    head has no effect on that row either. Subclasses write `candidate_losses` and set which
    logits are corrected.

    Args:
        remove_accidental_hits: Whether a drawn class that is a label of the row has no
            effect on that row. Default True: a label must not be its own negative.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.

    In a training loop of your own, call the model with `training=True`: without, the loss is
    the exact softmax loss, in O(num_classes) time, and says so once.

    Raises:
        ValueError: In training, if the `LargeOutput` has no sampler.
    """

    correct_positive = False
    correct_sampled = True

    def __init__(
        self,
        remove_accidental_hits: bool = True,
        reduction="sum_over_batch_size",
        name=None,
        dtype=None,
    ):
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.remove_accidental_hits = remove_accidental_hits

    def candidate_losses(self, true_logits, negatives: Negatives, has_label) -> tf.Tensor:
        """The loss of each row from its corrected logits.

        Args:
            true_logits: float32 `[B, L]`.
            negatives: The sampled classes of the rows.
            has_label: Bool `[B, L]`, False in padded places.

        Returns:
            float32 `[B]`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `candidate_losses`.")

    def row_losses(self, lazy, labels):
        layer, features = lazy.layer, lazy.flat_features
        if layer.sampler is None:
            raise ValueError(
                f"{type(self).__name__} scores classes that a sampler draws, but layer "
                f"'{layer.name}' has sampler=None. Give `LargeOutput` a sampler, e.g. "
                "sampler=tf_largeout.samplers.UniformSampler(1024), or use `SoftmaxLoss`."
            )
        sample = layer.sampler.sample(features, labels, layer)
        drawn = [part.sampled_candidates for part in _parts(sample)]
        lazy.candidates = score_candidates(features, *layer.local_variables(), labels, *drawn)
        true_logits, negatives = self._corrected(lazy.candidates, sample, labels)
        has_label = labels >= 0
        losses = self.candidate_losses(true_logits, negatives, has_label)
        return tf.where(tf.reduce_any(has_label, axis=-1), losses, 0)

    def evaluation_losses(self, lazy, labels):
        if lazy.training is None:
            warnings.warn(
                f"{type(self).__name__} was given logits of a call that did not say whether it "
                "trains, and is the exact softmax loss over all "
                f"{lazy.layer.num_classes} classes. In a training loop of your own call the "
                "model with training=True; where the exact loss is meant, with training=False.",
                stacklevel=1,  # here, so that a loop is told once
            )
        return super().evaluation_losses(lazy, labels)

    def _corrected(self, candidates, sample, labels):
        """The log-q correction, for all sampled losses."""
        true_logits, log_counts = candidates.true_logits, None
        if self.correct_positive:
            true_logits -= tf.math.log(sample.true_expected_count)
        if self.correct_sampled:
            log_counts = [tf.math.log(part.sampled_expected_count) for part in _parts(sample)]
        no_negatives = labels if self.remove_accidental_hits else labels[:, :0]
        return true_logits, candidates.negatives(no_negatives, log_counts)

    def get_config(self):
        return {**super().get_config(), "remove_accidental_hits": self.remove_accidental_hits}


def _parts(sample):
    """The samples that a sampler gave: a head and a tail, or one alone."""
    return (sample.head, sample.tail) if hasattr(sample, "head") else (sample,)
