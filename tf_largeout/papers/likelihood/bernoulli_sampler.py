"""Each class with its own probability, independently of the others."""

import keras
import numpy as np
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.class_counts import distorted
from tf_largeout.sampled_values import LEAST_COUNT
from tf_largeout.samplers.counted_samplers import CountedSampler, Spec
from tf_largeout.samplers.hard_negative_sampler import distinct_in_row
from tf_largeout.types import Config, TensorLike

_MOST_HITS = 40.0  # exp(-40) is far below the precision of the reported count


@keras.saving.register_keras_serializable(package="tf_largeout")
class BernoulliSampler(CountedSampler):
    """Draws each class c independently of the others, with probability `b_c`.

        b_c = f_c^a,    f_c = max(count_c, floor) / sum of the same over all classes

    where a in [0, 1] is such that the `b_c` sum to `num_sampled` (Barber & Botev 2016, section
    2.1.2). floor is 1, or the smallest positive count if that is below 1. No class is drawn
    twice. The expected count of class c is exactly `b_c`. **The number of drawn classes varies
    from step to step**: its mean is `num_sampled`, and its standard deviation is at most the
    square root of `num_sampled`. If `num_sampled` is the number of classes, all classes are
    drawn.

    A step takes O(num_sampled log num_classes) time. It draws a Poisson-distributed number of
    classes, with replacement, in proportion to `-log(1 - b_c)`. The distinct classes among them
    are the sample. The state takes 20 bytes per class. It is saved with the weights of the
    layer, not in the config.

    With `shared=True`, the default, the batch shares one sample of `[number drawn]` classes.
    With `shared=False`, each example has its own sample: `[batch, largest number drawn]`,
    padded with -1. A step then reads and updates about `batch * num_sampled` class rows instead
    of `num_sampled`.

    Args:
        num_sampled: Expected number of drawn classes, at most the number of classes.
        counts: Optional counts, or any numbers in proportion to them, one per class. Without
            them, `adapt` counts the training labels.
        seed: Int that determines the random draws; None for a random seed.
        shared: Whether the batch shares one sample.

    Raises:
        ValueError: When the layer is built, if there are fewer than `num_sampled` classes.

    Example:
        sampler = BernoulliSampler(1024, counts=counts)
        head = LargeOutput(100_000, sampler=sampler)  # for BernoulliNormalizationLoss
    """

    def __init__(
        self,
        num_sampled: int = 1024,
        counts: TensorLike | None = None,
        seed: int | None = None,
        shared: bool = True,
    ) -> None:
        super().__init__(num_sampled, counts, seed=seed, shared=shared)
        self.unique = True  # both a shared sample and that of an example

    def table_specs(self) -> list[Spec]:
        return [
            ("cumulative", (self.num_classes,), "float64"),
            ("probability", (self.num_classes,), "float32"),
        ]

    def make_tables(self, counts: np.ndarray) -> list[tf.Tensor]:
        weights = distorted(counts, 1.0)
        log_b = _log_probabilities(np.log(weights / weights.sum()), self.num_sampled)
        with np.errstate(divide="ignore"):
            hits = np.minimum(-np.log(-np.expm1(log_b)), _MOST_HITS)
        b = np.maximum(np.exp(log_b), LEAST_COUNT)
        return [tf.constant(np.cumsum(hits), tf.float64), tf.constant(b, tf.float32)]

    # XLA has no Poisson distribution.
    supports_jit = False

    def draw_shared(
        self, labels: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        _, probability = self.tables()
        num_hits, hits = self._hits(1, seed)
        ids = tf.unique(hits[0, : num_hits[0]]).y
        if self.num_sampled == self.num_classes:
            ids = tf.range(self.num_classes, dtype=tf.int64)
        true_counts = tf.gather(probability, tf.maximum(labels, 0))
        return ids, tf.where(labels >= 0, true_counts, 1), tf.gather(probability, ids)

    def draw_own(self, batch: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        if self.num_sampled == self.num_classes:
            every_class = tf.range(self.num_classes, dtype=tf.int64)
            return tf.tile(every_class[tf.newaxis], [batch, 1])
        num_hits, hits = self._hits(batch, seed)
        is_hit = tf.range(tf.shape(hits)[1], dtype=tf.int64) < num_hits[:, tf.newaxis]
        return distinct_in_row(tf.where(is_hit, hits, -1))

    def get_config(self) -> Config:
        return {"num_sampled": self.num_sampled, "seed": self.seed, "shared": self.shared}

    def _hits(
        self, num_samples: int | tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the numbers of hits of samples, and the hit classes, first in each row.

        Hits per class are independent and Poisson-distributed: none with probability 1 - b.
        """
        cumulative, _ = self.tables()
        total = cumulative[-1]
        message = "BernoulliSampler has no class counts"
        total = checks.passed([checks.require(total > 0, [message])], total)
        seeds = tf.random.experimental.stateless_split(seed, 2)
        num_hits = tf.random.stateless_poisson([num_samples], seeds[0], total, tf.int64)
        most = tf.reduce_max(tf.concat([num_hits, [0]], axis=0))
        shape = tf.stack([tf.size(num_hits, tf.int64), most])
        uniform = tf.random.stateless_uniform(shape, seeds[1], dtype=tf.float64)
        targets = tf.reshape(tf.minimum(uniform * total, total * (1 - 2.0**-53)), [-1])
        hits = tf.searchsorted(cumulative, targets, side="right", out_type=tf.int64)
        return num_hits, tf.reshape(hits, shape)


def _log_probabilities(log_f: np.ndarray, expected: int) -> np.ndarray:
    """Returns `a log_f`, with a such that the sum of `exp(a log_f)` is `expected`.

    The sum falls from the number of classes for a = 0 to 1 for a = 1.
    """
    values, times = np.unique(log_f, return_counts=True)
    low, high = 0.0, 1.0
    for _ in range(100):
        a = (low + high) / 2
        if np.sum(times * np.exp(a * values)) > expected:
            low = a
        else:
            high = a
    return high * log_f
