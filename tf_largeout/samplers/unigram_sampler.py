"""Classes by frequency."""

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import real_number
from tf_largeout.ops.table_sampling_ops import (
    alias_sample,
    alias_table,
    own_alias_draws,
    pivotal_sample,
    pivotal_table,
)
from tf_largeout.samplers.count_tables import Spec
from tf_largeout.samplers.counted_sampler import CountedSampler
from tf_largeout.samplers.label_counts import distorted
from tf_largeout.samplers.registry import named
from tf_largeout.types import Config, TensorLike


@named("unigram")
@keras.saving.register_keras_serializable(package="tf_largeout")
class UnigramSampler(CountedSampler):
    """Draws classes in proportion to their frequency.

        q_c = max(count_c, floor)^distortion / sum of the same over all classes

    where floor is 1, or the smallest positive count if that is below 1. So a class without a
    count is treated as if it had been seen once. Otherwise it would never be drawn, its score
    would never be reduced, and its correction log q would be infinite.

    The counts come from `counts` or from `adapt(labels)`, before or after the layer is built.
    Training without them is an error before the first step. The counts are saved with the
    weights of the layer, not in the config. So a saved model has its counts when its weights
    are loaded. A copy by `keras.models.clone_model` has them after `set_weights`. With
    replacement, the state is an alias table of 28 bytes per class, including its count. Without
    replacement, the state is a table of cumulative inclusion probabilities of 18 bytes per
    class. With both tables, a draw takes O(1) time on average. The expected counts are exact;
    see `StaticSampler`.

    Args:
        num_sampled: Number of classes drawn.
        counts: Optional counts, or any numbers in proportion to them, one per class.
        distortion: Exponent of the counts: 1, the default as in `tf.nn`, draws by frequency,
            and 0 draws uniformly. word2vec uses 0.75.
        unique: Whether to draw without replacement. By default True, as in `tf.nn`; with
            `shared=False` always False.
        seed: Int that determines the random draws; None for a random seed.
        shared: Whether the batch shares one sample, `[num_sampled]`. With False, each example
            has its own draws, `[batch, num_sampled]`, and a step reads, scores and updates
            `batch * num_sampled` class rows instead of `num_sampled`. That is why True is the
            default.

    Example:
        sampler = UnigramSampler(1024, distortion=0.75)
        sampler.adapt(train)  # a dataset of (x, y)
        keras.Sequential([encoder, LargeOutput(100_000, sampler=sampler)])
    """

    def __init__(
        self,
        num_sampled: int = 1024,
        counts: TensorLike | None = None,
        distortion: float = 1.0,
        unique: bool | None = None,
        seed: int | None = None,
        shared: bool = True,
    ) -> None:
        super().__init__(num_sampled, counts, unique=unique, seed=seed, shared=shared)
        self.distortion = real_number("distortion", distortion, least=0)

    def draw_shared(
        self, labels: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        first, second = self.tables()
        sample = pivotal_sample if self.unique else alias_sample
        return sample(labels, seed, first, second, self.num_sampled)

    def draw_own(self, batch: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        slots, _ = self.tables()
        return own_alias_draws(batch, seed, slots, self.num_sampled)

    def get_config(self) -> Config:
        return {**super().get_config(), "distortion": self.distortion}

    def table_specs(self) -> list[Spec]:
        if self.unique:
            return [
                ("cumulative", (self.num_classes + 1,), "int64"),
                ("index", (self._num_buckets + 1,), "int64"),
            ]
        return [
            ("alias_slots", (self.num_classes, 2), "int64"),
            ("probability", (self.num_classes,), "float32"),
        ]

    def make_tables(self, counts: np.ndarray) -> list[tf.Tensor]:
        weights = distorted(counts, self.distortion)
        with tf.device("CPU:0"):
            if self.unique:
                return [*pivotal_table(weights, self.num_sampled, self._num_buckets)]
            return [*alias_table(weights)]

    @property
    def _num_buckets(self) -> int:
        return self.num_classes // 4 + 1
