"""Probabilities of classes, from the scores that rank them.

Each function takes the scores of some classes of each query, float32 `[..., k]`, -inf where
there is no class; the queries, float32 `[..., dim]`; and all classes, such as a `ClassScorer`.
It returns float32 `[..., k]`, 0 where there is no class.
"""

from collections.abc import Callable
from typing import Literal, Protocol, get_args

import tensorflow as tf

from tf_largeout.classes.best_scores import NOTHING
from tf_largeout.types import Elementwise

Scores = Literal["logit", "softmax", "top_k_softmax", "sigmoid"]
SCORES: tuple[str, ...] = get_args(Scores)


class AllScores(Protocol):
    """Sums over the scores of all classes."""

    def log_partitions(
        self, features: tf.Tensor, log_weight: Elementwise | None = None
    ) -> tf.Tensor:
        """See `ClassScorer.log_partitions`."""


Probabilities = Callable[[tf.Tensor, tf.Tensor, AllScores], tf.Tensor]


def softmax(
    scores: tf.Tensor,
    queries: tf.Tensor,
    classes: AllScores,
    log_weight: Elementwise | None = None,
) -> tf.Tensor:
    """Returns `exp(f(s_c)) / sum_d exp(f(s_d))`, where d runs over all classes.

    `log_weight` is the elementwise function f; None for the identity.
    """
    flat = tf.reshape(queries, [-1, queries.shape[-1]])
    log_partitions = classes.log_partitions(flat, log_weight)
    log_partitions = tf.reshape(log_partitions, tf.shape(scores[..., :1]))
    weights = scores if log_weight is None else log_weight(scores)
    # Rounding must not make a probability larger than 1.
    found = tf.exp(tf.minimum(weights - log_partitions, 0))
    return tf.where(scores > NOTHING, found, 0)


def top_k_softmax(
    scores: tf.Tensor,
    queries: tf.Tensor,
    classes: AllScores,
    log_weight: Elementwise | None = None,
) -> tf.Tensor:
    """Like `softmax`, where d runs over the k classes found, without a pass over all classes.

    This is equation 1 of Vijayanarasimhan et al. 2015 ("Deep networks with large output
    spaces") with the sum over the K classes of the search, as in their inference (section 3.3).
    """
    there = scores > NOTHING
    weights = tf.where(there, scores if log_weight is None else log_weight(scores), NOTHING)
    highest = tf.maximum(tf.reduce_max(weights, axis=-1, keepdims=True), tf.float32.min)
    terms = tf.exp(weights - highest)
    return tf.math.divide_no_nan(terms, tf.reduce_sum(terms, axis=-1, keepdims=True))


def exponential(scores: tf.Tensor, queries: tf.Tensor, classes: AllScores) -> tf.Tensor:
    """Returns `exp(s_c)`, for scores that are log-probabilities."""
    return tf.exp(tf.minimum(scores, 0))


def sigmoid(scores: tf.Tensor, queries: tf.Tensor, classes: AllScores) -> tf.Tensor:
    """Returns `1 / (1 + exp(-s_c))`."""
    return tf.sigmoid(scores)
