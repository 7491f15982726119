"""Samplers with a fixed distribution: their base class, uniform, and Zipf's law."""

import inspect

import keras
import tensorflow as tf

from tf_largeout.ops import devices
from tf_largeout.ops.sampling_ops import (
    log_uniform_sample,
    own_log_uniform_draws,
    own_uniform_draws,
    uniform_sample,
)
from tf_largeout.sampled_values import DRAWS, PROBABILITIES, SampledValues
from tf_largeout.sampler_arguments import check_size, shared_and_unique
from tf_largeout.samplers.sampler import ClassLayer, Sampler, named
from tf_largeout.types import Config


class StaticSampler(Sampler):
    """Base of the samplers whose distribution `q` does not depend on features or weights.

    With `shared=True`, the default, the batch shares one sample of `[num_sampled]` classes. A
    step then reads `num_sampled` class rows besides those of the labels, and scores them with
    one matrix product.

    With `shared=False`, each example has its own independent draws, `[batch, num_sampled]`, as
    in the papers on sampled softmax. A step reads, scores one by one and updates `batch *
    num_sampled` class rows, so it takes far longer. Use it to reproduce these papers.

    With `unique=False` the draws are independent and the expected count of class c is
    `num_sampled * q_c`.

    With `unique=True`, the default of a shared sample as in `tf.nn`, the classes are distinct,
    because a repeated class takes time and adds no information. Class c is drawn with
    probability

        pi_c = min(1, tau * q_c),    tau such that the pi_c sum to num_sampled.

    This is exactly its expected count. (`tf.nn` rejects repeated draws and reports approximate
    counts.) If `num_sampled` is the number of classes, every class is drawn once, with count 1.
    The method is Deville's systematic sampling, also called ordered pivotal sampling, started
    at a random class: O(num_sampled) per step.

    A subclass implements `draw_shared`, and `draw_own` if it supports `shared=False`.

    Args:
        num_sampled: Number of classes drawn, a positive int; at most the number of classes
            if `unique`.
        unique: Whether to draw without replacement. None, the default, is True for a shared
            sample and False for `shared=False`, which has no draws without replacement.
        seed: Int that determines the random draws; None for a random seed.
        shared: Whether the batch shares one sample.

    Raises:
        ValueError: If an argument is invalid, or if `unique` is True and `shared` is False.
            When the layer is built: if `unique` is True and it has fewer than `num_sampled`
            classes.

    References:
        Deville and Tille 1998, "Unequal probability sampling without replacement through a
        splitting method"; Chauvet 2012, "On a characterization of ordered pivotal sampling".
    """

    def __init__(
        self,
        num_sampled: int = 1024,
        unique: bool | None = None,
        seed: int | None = None,
        shared: bool = True,
    ) -> None:
        super().__init__(num_sampled, seed=seed)
        self.shared, self.unique = shared_and_unique(shared, unique)

    @property
    def counts_are(self) -> str:
        return PROBABILITIES if self.unique else DRAWS

    def build(self, layer: ClassLayer) -> None:
        check_size(self, layer.num_classes)
        super().build(layer)

    def draw_shared(
        self, labels: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Draws the sample of a batch, the triple of `SampledValues`.

        It has the classes, int64 `[num_sampled]`, and the expected counts of the labels and of
        the classes, float32 `[batch, num_labels]` and `[num_sampled]`. `labels` are int64
        `[batch, num_labels]`, padded with -1. Equal seeds, int64 `[2]`, give equal draws.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `draw_shared`.")

    def draw_own(self, batch: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws the classes of each example, for `shared=False`.

        Returns int64 `[batch, num_sampled]`; a sampler that draws a random number of classes
        pads them with -1. Their expected counts, and those of the labels, are what
        `draw_shared` returns for labels. `batch` is the number of examples, an int32 tensor.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must implement `draw_own`, or be used with `shared=True`."
        )

    def draw(
        self, features: tf.Tensor | None, labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues:
        seed = layer.next_seed()
        with devices.host_ids_scope():
            if self.shared:
                return SampledValues(*self.draw_shared(labels, seed))
            ids = self.draw_own(tf.shape(labels)[0], seed)
            _, counts, _ = self.draw_shared(tf.concat([labels, ids], axis=1), seed)
            num_labels = tf.shape(labels)[1]
            return SampledValues(ids, counts[:, :num_labels], counts[:, num_labels:])

    def get_config(self) -> Config:
        config = {**super().get_config(), "unique": self.unique}
        # A subclass of a user may not have the argument `shared`.
        if not self.shared or "shared" in inspect.signature(type(self).__init__).parameters:
            config["shared"] = self.shared
        return config


@named("uniform")
@keras.saving.register_keras_serializable(package="tf_largeout")
class UniformSampler(StaticSampler):
    """Draws every class with the same probability, `q_c = 1 / num_classes`.

    Both with and without replacement the expected count of each class is `num_sampled /
    num_classes`. It has no state. The arguments are those of `StaticSampler`.

    Example:
        keras.Sequential([encoder, LargeOutput(100_000, sampler=UniformSampler(1024))])
    """

    def draw_shared(
        self, labels: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return uniform_sample(labels, seed, self.num_classes, self.num_sampled, self.unique)

    def draw_own(self, batch: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return own_uniform_draws(batch, seed, self.num_classes, self.num_sampled)


@named("log_uniform")
@keras.saving.register_keras_serializable(package="tf_largeout")
class LogUniformSampler(StaticSampler):
    """Draws classes by Zipf's law. Ids must be sorted by falling frequency.

        q_c = log((c + 2) / (c + 1)) / log(num_classes + 1)

    the distribution of `tf.random.log_uniform_candidate_sampler`. Expected counts are
    `num_sampled * q_c` with replacement, `min(1, tau * q_c)` without (see `unique`); the
    first few classes may then be drawn in every step. It has no state. The arguments are those
    of `StaticSampler`.

    Example:
        keras.Sequential([encoder, LargeOutput(100_000, sampler=LogUniformSampler(1024))])
    """

    def draw_shared(
        self, labels: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return log_uniform_sample(labels, seed, self.num_classes, self.num_sampled, self.unique)

    def draw_own(self, batch: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return own_log_uniform_draws(batch, seed, self.num_classes, self.num_sampled)
