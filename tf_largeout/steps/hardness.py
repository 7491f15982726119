"""How hard the negatives of an example are."""

from typing import Any

import tensorflow as tf

from tf_largeout.classes import blockwise
from tf_largeout.classes.best_scores import NOTHING
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.steps.labels import Labels
from tf_largeout.steps.output_tag import Head, SampledTag
from tf_largeout.steps.step import Candidates, absolute_or_lowest, score_candidates


def hardness(tag: SampledTag, labels: Labels, num_examples: int) -> tf.Tensor:
    """Returns the mean `softmax_mass` of negatives that are drawn for this measurement.

    The draw changes the seed of the layer and counters of the sampler, but no search structure.

    Args:
        tag: The tag of a layer with a sampler.
        labels: The labels of the examples.
        num_examples: Number of examples to draw for, spread evenly over those that have labels.
            If the examples of a batch share their classes, these examples do.

    Returns:
        float32 scalar, NaN if no example has labels.
    """
    head: Head = tag.head
    sampler: Any = head.sampler
    previous = tag.previous_labels(labels) if sampler.uses_previous else None
    rows = tf.where(labels.counted)[:, 0]
    size = tf.shape(rows)[0]
    number = tf.minimum(size, num_examples)
    rows = tf.gather(rows, tf.range(number) * size // tf.maximum(number, 1))
    features = tf.cast(tf.gather(tag.queries, rows), tf.float32)
    ids = tf.gather(labels.ids, rows)
    if previous is not None:
        previous = tf.gather(previous, rows)
    sample = sampler.sample_outside_step(features, ids, head, previous)
    classes: Any = head.class_matrix
    candidates = score_candidates(classes, features, ids, sample)
    ranking = head.ranking.value
    scorer = head.class_matrix.ranked_by(ranking)
    return tf.reduce_mean(softmax_mass(candidates, features, scorer, ranking == "absolute"))


def softmax_mass(
    candidates: Candidates, features: tf.Tensor, scorer: ClassScorer, absolute: bool = False
) -> tf.Tensor:
    """Returns the share of the softmax probability that the negatives of each example have.

    For an example with the labels Y, the distinct drawn classes S and the logits `o_c`, it is

        sum_{c in S - Y} e^{o_c} / sum_{c not in Y} e^{o_c}.

    It takes a pass over all classes.

    Args:
        candidates: The scored labels and drawn classes of `B` examples.
        features: float32 `[B, dim]`, their queries.
        scorer: Scores all classes.
        absolute: Whether `o_c` is the absolute value of the logit, as `scorer` computes it.

    Returns:
        float32 `[B]`, from 0 to 1; 0 if all classes are labels.
    """
    labels, shape = candidates.labels, tf.shape(candidates.labels)
    candidates = candidates._replace(remove_accidental_hits=True)
    ids = [
        tf.broadcast_to(one.sampled_candidates, tf.shape(one.products))
        for one in candidates.samples
    ]
    logits = candidates.logits()
    if absolute:
        logits = absolute_or_lowest(logits)
    of_negatives = tf.reduce_logsumexp(_first_of_equal(tf.concat(ids, axis=1), logits), axis=1)

    def add(total: tf.Tensor, scores: tf.Tensor, block: tf.Tensor) -> tf.Tensor:
        is_label = tf.reduce_any(labels[:, :, tf.newaxis] == block, axis=1)
        return blockwise.with_block(total, tf.where(is_label, NOTHING, scores))

    of_all = scorer.fold_logits(features, add, tf.fill(shape[:1], NOTHING), width=shape[1])
    share = tf.minimum(tf.exp(of_negatives - of_all), 1)
    return tf.where(tf.math.is_finite(of_all), share, 0)


def _first_of_equal(ids: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Returns the logits `[B, n]`, sorted by id; -inf for repeats and for the lowest float."""
    ids = tf.where(logits > logits.dtype.min, ids, -1)
    order = tf.argsort(ids, axis=1, stable=True)
    ids, logits = (tf.gather(one, order, batch_dims=1) for one in (ids, logits))
    is_first = tf.pad(ids[:, 1:] != ids[:, :-1], [[0, 0], [1, 0]], constant_values=True)
    return tf.where(is_first & (ids >= 0), logits, NOTHING)
