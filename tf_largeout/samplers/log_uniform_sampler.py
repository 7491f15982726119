"""Classes by Zipf's law."""

import keras
import tensorflow as tf

from tf_largeout.ops.sampling_ops import log_uniform_sample, own_log_uniform_draws
from tf_largeout.samplers.registry import named
from tf_largeout.samplers.static_sampler import StaticSampler


@named("log_uniform")
@keras.saving.register_keras_serializable(package="tf_largeout")
class LogUniformSampler(StaticSampler):
    """Draws classes by Zipf's law. Ids must be sorted by falling frequency.

        q_c = log((c + 2) / (c + 1)) / log(num_classes + 1)

    the distribution of `tf.random.log_uniform_candidate_sampler`. Expected counts are
    `num_sampled * q_c` with replacement, `min(1, tau * q_c)` without (see `unique`); the
    first few classes may then be drawn in every step. It has no state.

    Args:
        num_sampled: Number of classes drawn.
        unique: Whether to draw without replacement. By default True, as in `tf.nn`; with
            `shared=False` always False.
        seed: Int that determines the random draws; None for a random seed.
        shared: Whether the batch shares one sample, `[num_sampled]`. With False, each example
            has its own draws, `[batch, num_sampled]`, and a step reads, scores and updates
            `batch * num_sampled` class rows instead of `num_sampled`. That is why True is the
            default.

    Example:
        keras.Sequential([encoder, LargeOutput(100_000, sampler=LogUniformSampler(1024))])
    """

    def draw_shared(
        self, labels: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return log_uniform_sample(labels, seed, self.num_classes, self.num_sampled, self.unique)

    def draw_own(self, batch: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return own_log_uniform_draws(batch, seed, self.num_classes, self.num_sampled)
