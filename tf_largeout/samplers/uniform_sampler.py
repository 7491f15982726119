"""All classes with the same probability."""

import keras
import tensorflow as tf

from tf_largeout.ops.sampling_ops import own_uniform_draws, uniform_sample
from tf_largeout.samplers.registry import named
from tf_largeout.samplers.static_sampler import StaticSampler


@named("uniform")
@keras.saving.register_keras_serializable(package="tf_largeout")
class UniformSampler(StaticSampler):
    """Draws every class with the same probability, `q_c = 1 / num_classes`.

    Both with and without replacement the expected count of each class is
    `num_sampled / num_classes`. It has no state.

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
        keras.Sequential([encoder, LargeOutput(100_000, sampler=UniformSampler(1024))])
    """

    def draw_shared(
        self, labels: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return uniform_sample(labels, seed, self.num_classes, self.num_sampled, self.unique)

    def draw_own(self, batch: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return own_uniform_draws(batch, seed, self.num_classes, self.num_sampled)
