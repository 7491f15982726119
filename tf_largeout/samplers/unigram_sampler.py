"""Classes by frequency."""

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import real_number
from tf_largeout.initializers import constant_initializer, zeros_initializer
from tf_largeout.ops.table_sampling_ops import (
    alias_sample,
    alias_table,
    pivotal_sample,
    pivotal_table,
)
from tf_largeout.samplers.label_counts import check_counts, count_labels, distorted
from tf_largeout.samplers.registry import named
from tf_largeout.samplers.sampler import ClassLayer
from tf_largeout.samplers.static_sampler import StaticSampler
from tf_largeout.types import Config, Initializer, TensorLike

_NO_COUNTS = np.zeros(0)


@named("unigram")
@keras.saving.register_keras_serializable(package="tf_largeout")
class UnigramSampler(StaticSampler):
    """Draws classes in proportion to their frequency.

        q_c = max(count_c, floor)^distortion / sum of the same over all classes

    where floor is 1, or the smallest positive count where that is below 1. So a class that
    was never counted is treated as if it had been seen once: a class that is never drawn is
    never pushed down, and its correction log q would be infinite.

    The counts come from `counts` or from `adapt(labels)`, before or after the layer is built;
    to draw without them is an error, before the first step runs. They are kept as tables among
    the weights of the layer, not in the config: a saved model has its distribution again when
    its weights are loaded, and a `keras.models.clone_model` by `set_weights`.
    With replacement that is an alias table (20 bytes per class), without it a table of
    cumulative inclusion probabilities (10 bytes per class). Either draws in O(1) per sample
    in the mean; expected counts are as in `StaticSampler`, exactly.

    Args:
        num_sampled: Number of classes drawn.
        counts: Optional counts, or any numbers in proportion to them, one per class.
        distortion: Exponent of the counts: 1 (the default, as in `tf.nn`) draws by frequency,
            0 uniformly; word2vec takes 0.75.
        unique: Whether to draw without replacement. Defaults to `True`, as in `tf.nn`.
        seed: Optional int that the layer's draws start from; random if None.

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
        unique: bool = True,
        seed: int | None = None,
    ) -> None:
        super().__init__(num_sampled, unique=unique, seed=seed)
        self.distortion = real_number("distortion", distortion, least=0)
        self._counts = _NO_COUNTS if counts is None else check_counts(counts)
        self._counts_are_complete = counts is not None
        self._tables: list[keras.Variable] = []
        self._are_filled = False

    def adapt(self, data: TensorLike | tf.data.Dataset, steps: int | None = None) -> None:
        """Takes the counts from training labels, in place of any earlier ones.

        Args:
            data: Integer labels of any shape, padded with -1, or a `tf.data.Dataset` of them
                or of tuples `(x, y, ...)`.
            steps: Number of elements to take from a dataset; needed if it is infinite.

        Raises:
            ValueError: If there are no labels, some are no class ids, or the dataset is
                infinite and there is no `steps`.
        """
        counts = count_labels(data, steps)
        if self._tables:
            self._check_size(counts.size, False, self.num_classes)
        self._counts, self._counts_are_complete = counts, False
        if self._tables:
            for table, value in zip(self._tables, self._make_tables(), strict=True):
                table.assign(value)
            self._are_filled, self._counts = True, _NO_COUNTS

    def build(self, layer: ClassLayer) -> None:
        self._check_size(self._counts.size, self._counts_are_complete, layer.num_classes)
        super().build(layer)
        # Zeros stand in a table until it is loaded or adapted; the sample ops refuse them.
        initializers: list[Initializer] = [zeros_initializer, zeros_initializer]
        if self._counts.size:
            with tf.init_scope():
                initializers = [
                    constant_initializer(table.numpy()) for table in self._make_tables()
                ]
        self._tables = [
            self.add_weight(layer, name, shape, dtype, initializer)
            for (name, shape, dtype), initializer in zip(
                self._specs(), initializers, strict=True
            )
        ]

    def release(self) -> None:
        super().release()
        self._tables, self._are_filled = [], False

    def draw_shared(
        self, labels: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        self._require_counts()
        first, second = (tf.convert_to_tensor(table) for table in self._tables)
        sample = pivotal_sample if self.unique else alias_sample
        return sample(labels, seed, first, second, self.num_sampled)

    def get_config(self) -> Config:
        return {**super().get_config(), "distortion": self.distortion}

    @property
    def _num_buckets(self) -> int:
        return self.num_classes // 4 + 1

    def _specs(self) -> list[tuple[str, tuple[int, ...], str]]:
        """Name, shape and dtype of each table."""
        if self.unique:
            return [
                ("cumulative", (self.num_classes + 1,), "int64"),
                ("index", (self._num_buckets + 1,), "int64"),
            ]
        return [
            ("alias_slots", (self.num_classes, 2), "int64"),
            ("probability", (self.num_classes,), "float32"),
        ]

    def _make_tables(self) -> tuple[tf.Tensor, tf.Tensor]:
        counts = np.pad(self._counts, (0, self.num_classes - self._counts.size))
        weights = distorted(counts, self.distortion)
        with tf.device("CPU:0"):
            if self.unique:
                return pivotal_table(weights, self.num_sampled, self._num_buckets)
            return alias_table(weights)

    def _require_counts(self) -> None:
        """Raises a ValueError where the tables are empty. Lets the counts go: they are made."""
        self._are_filled = self._are_filled or self._counts.size > 0 or self._hold_something()
        if not self._are_filled:
            raise ValueError(
                f"This {type(self).__name__} has no counts to draw by. Pass `counts`, call "
                "`adapt` on the training labels, or load saved weights: counts are kept with "
                "the weights, not in the config, so that a model made from a config, as by "
                "`keras.models.clone_model`, has none before `clone.set_weights(...)`."
            )
        self._counts = _NO_COUNTS

    def _hold_something(self) -> bool:
        """Whether the tables were loaded. Unknown while variables are yet to be made: True."""
        table = self._tables[0 if self.unique else 1]
        with tf.init_scope():
            local = tf.distribute.get_strategy().experimental_local_results(table.value)[0]
            try:
                return bool(local[-1] > 0)
            except tf.errors.FailedPreconditionError:
                return True  # the op asks

    def _check_size(self, size: int, is_complete: bool, num_classes: int) -> None:
        if size > num_classes or (is_complete and 0 < size < num_classes):
            raise ValueError(
                f"{type(self).__name__} has counts of {size} classes, but the layer has "
                f"num_classes={num_classes}. Pass one count per class, or labels below "
                "num_classes to `adapt`."
            )
