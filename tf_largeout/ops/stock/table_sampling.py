"""Draws from any distribution, with tables that are bit-identical to those of the op library.

NumPy computes the tables once, on the host; see `sampling_tables`.
"""

import math

import numpy as np
import tensorflow as tf

from tf_largeout.ops.stock import errors, philox, sampling
from tf_largeout.sampling_tables import (
    ALIAS_TOTAL,
    alias_table,
    pivotal_table,
    stratum_length,
)

_MOST_CLASSES = 2**31
_HOW_TO_FILL = "a UnigramSampler gets one from `counts`, from `adapt`, or from saved weights"


def largeout_alias_table(weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the slots and the probabilities for `largeout_alias_sample`."""
    weights = _weights(weights)
    dtypes = [tf.int64, tf.float32]

    def table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        _check_weights(weights, 1)
        return alias_table(weights)

    slots, probability = tf.numpy_function(table, [weights], dtypes, stateful=False)
    size = weights.shape[0]
    return tf.ensure_shape(slots, [size, 2]), tf.ensure_shape(probability, [size])


def largeout_pivotal_table(
    weights: tf.Tensor, num_sampled: int, num_buckets: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the cumulative masses and the index for `largeout_pivotal_sample`."""
    sampling.check_count("num_sampled", num_sampled)
    sampling.check_count("num_buckets", num_buckets)
    weights = _weights(weights)

    def table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        _check_weights(weights, num_sampled)
        return pivotal_table(weights, num_sampled, num_buckets)

    dtypes = [tf.int64, tf.int64]
    cumulative, index = tf.numpy_function(table, [weights], dtypes, stateful=False)
    size = weights.shape[0]
    cumulative = tf.ensure_shape(cumulative, [None if size is None else size + 1])
    return cumulative, tf.ensure_shape(index, [num_buckets + 1])


def largeout_alias_sample(
    true_classes: tf.Tensor,
    seed: tf.Tensor,
    slots: tf.Tensor,
    probability: tf.Tensor,
    num_sampled: int,
) -> sampling.Sample:
    """Draws with replacement."""
    sampling.check_count("num_sampled", num_sampled)
    slots = errors.tensor(slots, tf.int64, "slots")
    probability = errors.tensor(probability, tf.float32, "probability")
    sizes = tf.TensorShape([probability.shape[0] if probability.shape.rank == 1 else 0, 2])
    if 0 in sizes or not slots.shape.is_compatible_with(sizes):
        errors.fail(
            "slots and probability must have shapes [num_classes, 2] and [num_classes], "
            f"received {errors.sizes(slots)} and {errors.sizes(probability)}"
        )
    errors.precondition(probability[0] > 0, f"the alias table is empty: {_HOW_TO_FILL}")
    num_classes = _size(probability)
    first, second = philox.bits_of_draws(sampling.seed_tensor(seed), num_sampled)
    own = philox.scale_bits(first, num_classes)
    threshold, alias = tf.unstack(tf.gather(slots, own), axis=1)
    drawn = tf.where(philox.scale_bits(second, ALIAS_TOTAL) < threshold, own, alias)

    def counts_of(ids: tf.Tensor) -> tf.Tensor:
        return num_sampled * tf.gather(probability, ids)

    true_counts = sampling.counts_of_labels(true_classes, num_classes, counts_of)
    # Table entries are ids, which may come from a damaged file.
    message = f"the alias table is damaged: it contains class {{number}} of {num_classes}"
    exists = (drawn >= 0) & (drawn < num_classes)
    drawn = errors.all_true(exists, drawn, message, drawn, tf.errors.DataLossError)
    inside = tf.clip_by_value(drawn, 0, num_classes - 1)
    return inside, true_counts, tf.where(exists, counts_of(inside), float("nan"))


def largeout_pivotal_sample(
    true_classes: tf.Tensor,
    seed: tf.Tensor,
    cumulative: tf.Tensor,
    index: tf.Tensor,
    num_sampled: int,
) -> sampling.Sample:
    """Draws distinct classes.

    A binary search over all classes finds a class, in a static number of steps. `index` is not
    used.
    """
    sampling.check_count("num_sampled", num_sampled)
    cumulative = errors.tensor(cumulative, tf.int64, "cumulative")
    index = errors.tensor(index, tf.int64, "index")
    if not all(x.shape.rank in (1, None) and x.shape != [1] for x in (cumulative, index)):
        errors.fail(
            "cumulative and index must be vectors of at least 2 numbers, received "
            f"{errors.sizes(cumulative)} and {errors.sizes(index)}"
        )
    distribution = _Table(cumulative, num_sampled)
    message = f"the table of cumulative counts is empty: {_HOW_TO_FILL}"
    errors.precondition(cumulative[-1] != 0, message)
    errors.precondition(
        distribution.fits,
        "the table of cumulative counts was not made for "
        f"num_sampled={num_sampled}: make a new one from the counts",
    )
    return sampling.sample(distribution, true_classes, seed, num_sampled, unique=True)


class _Table:
    """A distribution given by cumulative lengths, int64 `[num_classes + 1]`."""

    def __init__(self, cumulative: tf.Tensor, num_strata: int):
        self._cumulative = cumulative
        self.num_classes = _size(cumulative) - 1
        self.stratum = stratum_length(num_strata)
        self.fits = cumulative[-1] == num_strata * self.stratum
        most_steps = (cumulative.shape[0] or _MOST_CLASSES).bit_length()
        self._halvings = [1 << step for step in reversed(range(most_steps))]

    def cumulative(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(self._cumulative, ids)

    def find(self, places: tf.Tensor) -> tf.Tensor:
        last = self.num_classes - 1
        ids = tf.zeros_like(places)
        for step in self._halvings:
            later = tf.minimum(ids + step, last)
            ids = tf.where(self.cumulative(later) <= places, later, ids)
        return ids

    def lengths(self, ids: tf.Tensor) -> tf.Tensor:
        length = self.cumulative(ids + 1) - self.cumulative(ids)
        unit = tf.where(self.fits, tf.constant(self.stratum, tf.float64), math.nan)
        return tf.cast(length, tf.float64) / unit


def _size(vector: tf.Tensor) -> int | tf.Tensor:
    return tf.size(vector, tf.int64) if vector.shape[0] is None else vector.shape[0]


def _weights(weights: tf.Tensor) -> tf.Tensor:
    weights = errors.tensor(weights, tf.float64, "weights")
    if weights.shape.rank not in (1, None):
        errors.fail(f"weights must be a vector, received shape {errors.sizes(weights)}")
    return weights


def _check_weights(weights: np.ndarray, num_sampled: int) -> None:
    if not num_sampled <= weights.size <= _MOST_CLASSES:
        errors.fail(
            f"weights must be a vector of {num_sampled} to {_MOST_CLASSES} numbers, received "
            f"shape [{weights.size}]"
        )
    is_bad = ~(weights > 0)
    if is_bad.any():
        bad = int(np.argmax(is_bad))
        errors.fail(f"weights must be positive, received {weights[bad]} for class {bad}")
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not np.isfinite(total):
        errors.fail(
            f"the sum of the weights must be finite, received {total}: scale the weights down"
        )
