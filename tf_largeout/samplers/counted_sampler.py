"""The base class of static samplers that draw by the counts of the classes."""

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.initializers import constant_initializer, zeros_initializer
from tf_largeout.samplers.label_counts import check_counts, count_labels
from tf_largeout.samplers.sampler import ClassLayer
from tf_largeout.samplers.static_sampler import StaticSampler
from tf_largeout.types import Initializer, TensorLike

_NO_COUNTS = np.zeros(0)


class CountedSampler(StaticSampler):
    """Base of the samplers whose distribution is made of one count per class.

    The counts come from `counts` or from `adapt(labels)`, before or after the layer is built;
    to draw without them is an error, before the first step runs. They are kept as tables among
    the weights of the layer, not in the config.

    A subclass writes `table_specs`, `make_tables` and `draw_shared`, which begins with
    `tables()`.

    Args:
        num_sampled: Number of classes drawn.
        counts: Optional counts, or any numbers in proportion to them, one per class.
        unique: Whether to draw without replacement.
        seed: Optional int that the layer's draws start from; random if None.
    """

    def __init__(
        self,
        num_sampled: int = 1024,
        counts: TensorLike | None = None,
        unique: bool = True,
        seed: int | None = None,
    ) -> None:
        super().__init__(num_sampled, unique=unique, seed=seed)
        self._counts = _NO_COUNTS if counts is None else check_counts(counts)
        self._counts_are_complete = counts is not None
        self._tables: list[keras.Variable] = []
        self._are_filled = False

    def table_specs(self) -> list[tuple[str, tuple[int, ...], str]]:
        """Name, shape and dtype of each table. Tables of zeros alone hold no counts."""
        raise NotImplementedError(f"{type(self).__name__} must define `table_specs`.")

    def make_tables(self, counts: np.ndarray) -> list[tf.Tensor]:
        """The tables, of float64 counts `[num_classes]`, not negative and not all 0."""
        raise NotImplementedError(f"{type(self).__name__} must define `make_tables`.")

    def tables(self) -> list[tf.Tensor]:
        """The tables, in the order of `table_specs`.

        Raises:
            ValueError: If they are empty.
        """
        self._require_counts()
        return [tf.convert_to_tensor(table) for table in self._tables]

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
        # Zeros stand in a table until it is loaded or adapted; a draw from them is refused.
        specs = self.table_specs()
        initializers: list[Initializer] = [zeros_initializer] * len(specs)
        if self._counts.size:
            with tf.init_scope():
                initializers = [
                    constant_initializer(table.numpy()) for table in self._make_tables()
                ]
        self._tables = [
            self.add_weight(layer, name, shape, dtype, initializer)
            for (name, shape, dtype), initializer in zip(specs, initializers, strict=True)
        ]

    def release(self) -> None:
        super().release()
        self._tables, self._are_filled = [], False

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
        strategy = tf.distribute.get_strategy()
        with tf.init_scope():
            try:
                last = [
                    strategy.experimental_local_results(table.value)[0][-1]
                    for table in self._tables
                ]
            except tf.errors.FailedPreconditionError:
                return True  # the draw asks
            return any(bool(tf.reduce_any(numbers > 0)) for numbers in last)

    def _make_tables(self) -> list[tf.Tensor]:
        counts = np.pad(self._counts, (0, self.num_classes - self._counts.size))
        return self.make_tables(counts)

    def _check_size(self, size: int, is_complete: bool, num_classes: int) -> None:
        if size > num_classes or (is_complete and 0 < size < num_classes):
            raise ValueError(
                f"{type(self).__name__} has counts of {size} classes, but the layer has "
                f"num_classes={num_classes}. Pass one count per class, or labels below "
                "num_classes to `adapt`."
            )
