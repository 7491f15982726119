"""The classes that a sampled loss scores: the labels of each row and the sampled ones."""

from typing import NamedTuple

import tensorflow as tf

from tf_largeout.ops import candidate_ops, row_dot_ops


class NegativeSample(NamedTuple):
    """The logits of one sample for `B` rows, without accidental hits.

    Kept in parts, because a loss that needs only their logsumexp never forms the sum of
    product and offsets, nor the matrix of probabilities.

    Attributes:
        products: float32 `[B, num_sampled]`, features times class embeddings.
        offsets: float32 `[num_sampled]` or `[B, num_sampled]`, added to the products: the
            biases, less the log of the expected counts where those are corrected for.
        excluded: int64 `[B, L]`, padded with -1: classes that are no negatives of the row.
        sampled_candidates: int64 `[num_sampled]` or `[B, num_sampled]`.
    """

    products: tf.Tensor
    offsets: tf.Tensor
    excluded: tf.Tensor
    sampled_candidates: tf.Tensor


class Negatives(NamedTuple):
    """The logits of all sampled classes for `B` rows, without accidental hits.

    Attributes:
        samples: One `NegativeSample` or more, side by side.
    """

    samples: tuple[NegativeSample, ...]

    def logits(self) -> tf.Tensor:
        """float32 `[B, num_sampled]`, the lowest float at accidental hits."""
        parts = [candidate_ops.shifted_candidate_logits(*one) for one in self.samples]
        return parts[0] if len(parts) == 1 else tf.concat(parts, axis=-1)

    def log_partition(self) -> tf.Tensor:
        """float32 `[B]`, log of the sum of exp of the logits."""
        parts = [candidate_ops.candidate_log_partition(*one) for one in self.samples]
        return parts[0] if len(parts) == 1 else tf.reduce_logsumexp(tf.stack(parts), axis=0)


class ScoredSample(NamedTuple):
    """Scores of one sample for `B` rows, before any correction.

    Attributes:
        products: float32 `[B, num_sampled]`; at id -1, which is no class, the lowest float.
        biases: float32, like `sampled_candidates`; 0 where the products hold them already.
        sampled_candidates: int64 `[num_sampled]` or `[B, num_sampled]`.
    """

    products: tf.Tensor
    biases: tf.Tensor
    sampled_candidates: tf.Tensor


class Candidates(NamedTuple):
    """Scores of the candidates of `B` rows, before any correction.

    Attributes:
        true_logits: float32 `[B, L]`, logits of the labels; 0 in padded places.
        samples: A `ScoredSample` for each sample, those of each row's own first.
    """

    true_logits: tf.Tensor
    samples: tuple[ScoredSample, ...]

    def negatives(self, labels, log_expected_counts=None) -> Negatives:
        """The sampled classes as negatives, each class of a row in one sample only.

        A class of the shared sample that is among the row's own has no effect on that row.

        Args:
            labels: int64 `[B, L]`, padded with -1: classes that are no negatives of the row.
            log_expected_counts: For each sample, what is subtracted from its logits: a tensor
                like its `sampled_candidates`. None: nothing.
        """
        negatives, excluded = [], labels
        for sample, log_count in zip(
            self.samples, log_expected_counts or [0.0] * len(self.samples), strict=True
        ):
            ids, offsets = sample.sampled_candidates, sample.biases - log_count
            negatives.append(NegativeSample(sample.products, offsets, excluded, ids))
            excluded = tf.concat([excluded, ids], axis=1) if ids.shape.rank == 2 else excluded
        return Negatives(tuple(negatives))


def score_candidates(features, embeddings, bias, labels, *sampled_candidates) -> Candidates:
    """Scores the labels and the sampled classes of each row.

    All rows of the class embeddings are read by one op, whose gradient is one sparse gradient
    with a row for each distinct class. Padding reads nothing, so no row is touched for its
    sake.

    Args:
        features: `[B, dim]`.
        embeddings: `tf.Variable` `[num_classes, dim]`.
        bias: `tf.Variable` `[num_classes]`, or None.
        labels: int64 `[B, L]`, padded with -1.
        *sampled_candidates: int64 `[B, num_sampled]` for classes of each row's own, padded
            with -1, or `[num_sampled]` for shared ones; or both, in this order.
    """
    own = [ids for ids in sampled_candidates if ids.shape.rank == 2]
    shared = [ids for ids in sampled_candidates if ids.shape.rank == 1]
    own_logits, rows, biases = row_dot_ops.row_dots_and_rows(
        features,
        embeddings,
        bias,
        tf.concat([labels, *own], axis=1),
        shared[0] if shared else tf.zeros([0], tf.int64),
    )
    width = tf.shape(labels)[1]
    samples = [ScoredSample(own_logits[:, width:], tf.zeros(tf.shape(i)), i) for i in own]
    if shared:
        products = tf.matmul(features, tf.cast(rows, features.dtype), transpose_b=True)
        biases = tf.zeros(tf.shape(shared[0])) if biases is None else biases
        samples.append(ScoredSample(tf.cast(products, tf.float32), biases, shared[0]))
    true_logits = tf.where(labels >= 0, own_logits[:, :width], 0)
    return Candidates(true_logits, tuple(samples))
