"""The base class of the losses that score the labels and a sample of classes."""

import tensorflow as tf

from tf_largeout.lazy_logits import Candidates, LazyLogits
from tf_largeout.losses.large_output_loss import LargeOutputLoss
from tf_largeout.ops import candidate_ops


class SampledLoss(LargeOutputLoss):
    """A loss over the labels of a row and the classes that the layer's sampler draws.

    Scores them, corrects the logits by the log of the expected counts (the only place where
    that is done) and masks accidental hits. Subclasses write `candidate_losses` and set
    which logits are corrected.

    Args:
        remove_accidental_hits: Whether a drawn class that is a label of the row has no
            effect on that row. Default True: a label must not be its own negative.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.

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

    def candidate_losses(self, true_logits, sampled_logits, has_label) -> tf.Tensor:
        """The loss of each row from its corrected logits.

        Args:
            true_logits: float32 `[B, L]`.
            sampled_logits: float32 `[B, num_sampled]`; the lowest float at accidental hits.
            has_label: Bool `[B, L]`, False in padded places.

        Returns:
            float32 `[B]`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `candidate_losses`.")

    def row_losses(self, lazy, labels):
        layer = lazy.layer
        if layer.sampler is None:
            raise ValueError(
                f"{type(self).__name__} scores classes that a sampler draws, but layer "
                f"'{layer.name}' has sampler=None. Give `LargeOutput` a sampler, e.g. "
                "sampler=tf_largeout.samplers.UniformSampler(1024), or use `SoftmaxLoss`."
            )
        sample = layer.sampler.sample(lazy.flat_features, labels, layer)
        scores = score_candidates(lazy, labels, sample.sampled_candidates)
        lazy.candidates = scores
        has_label = labels >= 0
        true_logits = scores.true_logits
        if self.correct_positive:
            true_logits -= tf.math.log(sample.true_expected_count)
        log_expected_count = (
            tf.math.log(sample.sampled_expected_count)
            if self.correct_sampled
            else tf.zeros_like(sample.sampled_expected_count)
        )
        hits = labels if self.remove_accidental_hits else labels[:, :0]
        sampled_logits = candidate_ops.corrected_candidate_logits(
            scores.sampled_logits, log_expected_count, hits, sample.sampled_candidates
        )
        losses = self.candidate_losses(true_logits, sampled_logits, has_label)
        return tf.where(tf.reduce_any(has_label, axis=-1), losses, 0)

    def get_config(self):
        return {**super().get_config(), "remove_accidental_hits": self.remove_accidental_hits}


def score_candidates(lazy: LazyLogits, labels, sampled_candidates) -> Candidates:
    """Logits of the labels and of the sampled classes, float32, without correction.

    Reads the rows of all of them by one gather, so that the class embeddings get one sparse
    gradient. Padded labels read nothing, so no row is touched for their sake.

    Args:
        lazy: The lazy logits of `B` rows.
        labels: int64 `[B, L]`, padded with -1.
        sampled_candidates: int64 `[num_sampled]`, or `[B, num_sampled]` one set a row.
    """
    features = lazy.flat_features
    places = tf.where(labels >= 0)
    true_ids = tf.gather_nd(labels, places)
    ids = tf.concat([true_ids, tf.reshape(sampled_candidates, [-1])], axis=0)
    embeddings, bias = lazy.layer.local_variables()
    sizes = tf.stack([tf.size(true_ids), tf.size(sampled_candidates)])
    rows = tf.cast(tf.gather(embeddings, ids), features.dtype)
    true_rows, sampled_rows = tf.split(rows, sizes)
    true_features = tf.gather(features, places[:, 0])
    true_logits = tf.reduce_sum(tf.cast(true_features * true_rows, tf.float32), axis=-1)
    sampled_logits = tf.cast(
        _dot_rows(features, sampled_rows, sampled_candidates.shape), tf.float32
    )
    if bias is not None:
        biases = tf.cast(tf.gather(bias, ids), tf.float32)
        true_bias, sampled_bias = tf.split(biases, sizes)
        true_logits += true_bias
        sampled_logits += tf.reshape(sampled_bias, tf.shape(sampled_candidates))
    return Candidates(
        tf.scatter_nd(places, true_logits, tf.shape(labels, tf.int64)),
        sampled_logits,
        sampled_candidates,
    )


def _dot_rows(features, rows, candidates_shape):
    """`[B, num_sampled]` inner products of each row's features and its candidates."""
    if candidates_shape.rank == 1:
        return tf.matmul(features, rows, transpose_b=True)
    rows = tf.reshape(rows, [-1, candidates_shape[-1], features.shape[-1]])
    return tf.einsum("bd,bmd->bm", features, rows)
