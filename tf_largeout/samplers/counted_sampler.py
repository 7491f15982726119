"""The base class of static samplers that draw by counts of the classes."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.samplers.count_tables import CountTables, Spec
from tf_largeout.samplers.label_counts import check_counts, count_labels
from tf_largeout.samplers.sampler import ClassLayer
from tf_largeout.samplers.static_sampler import StaticSampler
from tf_largeout.types import TensorLike
from tf_largeout.variables.initializers import constant_initializer
from tf_largeout.variables.replicas import local_variable

_NO_COUNTS = np.zeros(0)


class CountedSampler(StaticSampler):
    """Base of the samplers whose distribution is computed from one count per class.

    The counts come from `counts` or from `adapt(labels)`, before or after the layer is built.
    Training without counts raises an error before the first step. The counts, and tables
    computed from them, are saved with the weights of the layer, not in the config.

    A subclass implements `table_specs`, `make_tables` and `draw_shared`, and `draw_own` if it
    supports `shared=False`. Both first call `tables()`.

    Args:
        num_sampled: Number of classes drawn.
        counts: Optional counts, or any numbers in proportion to them, one per class.
        unique: As in `StaticSampler`.
        seed: Int that determines the random draws; None for a random seed.
        shared: As in `StaticSampler`.
    """

    def __init__(
        self,
        num_sampled: int = 1024,
        counts: TensorLike | None = None,
        unique: bool | None = None,
        seed: int | None = None,
        shared: bool = True,
    ) -> None:
        super().__init__(num_sampled, unique=unique, seed=seed, shared=shared)
        self._counts = _NO_COUNTS if counts is None else check_counts(counts)
        self._counts_are_complete = counts is not None
        self._tables = CountTables()
        self._count_weight: keras.Variable = None  # until it is built

    def table_specs(self) -> list[Spec]:
        """Returns the name, shape and dtype of each table. Zeros mean no counts."""
        raise NotImplementedError(f"{type(self).__name__} must define `table_specs`.")

    def make_tables(self, counts: np.ndarray) -> list[tf.Tensor]:
        """Returns tables for float64 counts `[num_classes]`, none negative and not all 0."""
        raise NotImplementedError(f"{type(self).__name__} must define `make_tables`.")

    def tables(self) -> list[tf.Tensor]:
        """Returns the tables, in the order of `table_specs`.

        Raises:
            ValueError: If they are empty.
        """
        tables = self._tables.read(type(self).__name__)
        self._counts = _NO_COUNTS  # the tables hold them
        return tables

    def adapt(self, data: TensorLike | tf.data.Dataset, steps: int | None = None) -> None:
        """Counts the training labels; replaces earlier counts.

        Args:
            data: Integer labels of any shape, padded with -1, or a `tf.data.Dataset` of them
                or of tuples `(x, y, ...)`.
            steps: Number of elements to take from a dataset; needed if it is infinite.

        Raises:
            ValueError: If `data` contains no labels, if some labels are not class ids, or if
                the dataset is infinite and `steps` is None.
        """
        counts = count_labels(data, steps)
        if self._tables.are_built:
            self._check_size(counts.size, False, self.num_classes)
        self._counts, self._counts_are_complete = counts, False
        if self._tables.are_built:
            self._fill_tables()
            self._counts = _NO_COUNTS

    def build(self, layer: ClassLayer) -> None:
        self._check_size(self._counts.size, self._counts_are_complete, layer.num_classes)
        super().build(layer)
        self._tables = CountTables()  # its own, even if the sampler is a copy of another
        counts, values = np.zeros(self.num_classes), None
        if self._counts.size:
            counts = self._all_counts()
            with tf.init_scope():
                values = [table.numpy() for table in self.make_tables(counts)]
        self._tables.build(self, layer, self.table_specs(), values)
        # The tables do not contain them: very frequent classes have the same entries.
        self._count_weight = self.add_weight(
            layer, "counts", counts.shape, "float64", constant_initializer(counts)
        )

    def release(self) -> None:
        super().release()
        self._tables = CountTables()
        self._count_weight = None

    def take_classes(self, before: Any, change: ClassChange) -> None:
        counts = local_variable(before._count_weight).numpy()
        if not counts.any():
            return  # nothing was counted
        counts = change.moved(counts, 0)
        self._counts = counts if counts.any() else np.ones(self.num_classes)
        self._fill_tables()

    def _fill_tables(self) -> None:
        counts = self._all_counts()
        self._tables.assign(self.make_tables(counts))
        self._count_weight.assign(counts)

    def _all_counts(self) -> np.ndarray:
        return np.pad(self._counts, (0, self.num_classes - self._counts.size))

    def _check_size(self, size: int, is_complete: bool, num_classes: int) -> None:
        if size > num_classes or (is_complete and 0 < size < num_classes):
            raise ValueError(
                f"{type(self).__name__} has counts of {size} classes, but the layer has "
                f"num_classes={num_classes}. Pass one count per class, or labels below "
                "num_classes to `adapt`."
            )
