"""The classes that a sampled loss scores: the labels of each row and the sampled ones."""

from typing import NamedTuple

import tensorflow as tf

from tf_largeout.ops import candidate_ops


class Negatives(NamedTuple):
    """The logits of the sampled classes for `B` rows, without accidental hits.

    Kept in parts, because a loss that needs only their logsumexp never forms the sum of
    product and offsets, nor the matrix of probabilities.

    Attributes:
        products: float32 `[B, num_sampled]`, features times class embeddings.
        offsets: float32 `[num_sampled]` or `[B, num_sampled]`, added to the products: the
            biases, less the log of the expected counts where those are corrected for.
        labels: int64 `[B, L]`, padded with -1: classes that are no negatives of the row.
        sampled_candidates: int64 `[num_sampled]` or `[B, num_sampled]`.
    """

    products: tf.Tensor
    offsets: tf.Tensor
    labels: tf.Tensor
    sampled_candidates: tf.Tensor

    def logits(self) -> tf.Tensor:
        """float32 `[B, num_sampled]`, the lowest float at accidental hits."""
        return candidate_ops.shifted_candidate_logits(*self)

    def log_partition(self) -> tf.Tensor:
        """float32 `[B]`, log of the sum of exp of the logits."""
        return candidate_ops.candidate_log_partition(*self)


class Candidates(NamedTuple):
    """Scores of the candidates of `B` rows, before any correction.

    Attributes:
        true_logits: float32 `[B, L]`, logits of the labels; 0 in padded places.
        products: float32 `[B, num_sampled]`, features times class embeddings.
        biases: float32, like `sampled_candidates`: the biases of the sampled classes.
        sampled_candidates: int64 `[num_sampled]` or `[B, num_sampled]`.
    """

    true_logits: tf.Tensor
    products: tf.Tensor
    biases: tf.Tensor
    sampled_candidates: tf.Tensor

    def negatives(self, labels, log_expected_count=0.0) -> Negatives:
        """The sampled classes as negatives.

        Args:
            labels: int64 `[B, L]`, padded with -1: classes that are no negatives of the row.
            log_expected_count: Like `sampled_candidates`; subtracted from the logits.
        """
        offsets = self.biases - log_expected_count
        return Negatives(self.products, offsets, labels, self.sampled_candidates)


def score_candidates(features, embeddings, bias, labels, sampled_candidates) -> Candidates:
    """Scores the labels and the sampled classes of each row.

    Reads the rows of all of them by one gather, so that the class embeddings get one sparse
    gradient. Padded labels read nothing, so no row is touched for their sake.

    Args:
        features: `[B, dim]`.
        embeddings: `tf.Variable` `[num_classes, dim]`.
        bias: `tf.Variable` `[num_classes]`, or None.
        labels: int64 `[B, L]`, padded with -1.
        sampled_candidates: int64 `[num_sampled]`, or `[B, num_sampled]` one set a row.
    """
    places = tf.where(labels >= 0)
    true_ids = tf.gather_nd(labels, places)
    ids = tf.concat([true_ids, tf.reshape(sampled_candidates, [-1])], axis=0)
    sizes = tf.stack([tf.size(true_ids), tf.size(sampled_candidates)])
    rows = tf.cast(tf.gather(embeddings, ids), features.dtype)
    true_rows, sampled_rows = tf.split(rows, sizes)
    true_features = tf.gather(features, places[:, 0])
    true_logits = tf.reduce_sum(tf.cast(true_features * true_rows, tf.float32), axis=-1)
    products = tf.cast(_products(features, sampled_rows, sampled_candidates.shape), tf.float32)
    biases = tf.zeros(tf.shape(sampled_candidates))
    if bias is not None:
        true_bias, sampled_bias = tf.split(tf.cast(tf.gather(bias, ids), tf.float32), sizes)
        true_logits += true_bias
        biases = tf.reshape(sampled_bias, tf.shape(sampled_candidates))
    true_logits = tf.scatter_nd(places, true_logits, tf.shape(labels, tf.int64))
    return Candidates(true_logits, products, biases, sampled_candidates)


def _products(features, rows, candidates_shape):
    """`[B, num_sampled]` inner products of each row's features and its candidates."""
    if candidates_shape.rank == 1:
        return tf.matmul(features, rows, transpose_b=True)
    rows = tf.reshape(rows, [-1, candidates_shape[-1], features.shape[-1]])
    return tf.einsum("bd,bmd->bm", features, rows)
