"""`ClassChange`: which classes a layer keeps, and their new ids."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import MOST_CLASSES, whole_number
from tf_largeout.types import TensorLike
from tf_largeout.variables.class_rows import row_blocks, set_rows


class ClassChange:
    """New ids for the classes of a layer, when classes are removed and added.

    New class i is old class `kept[i]` if i is below `len(kept)`. The other `num_new` classes
    are new.

    Args:
        num_before: Number of classes before.
        num_classes: Number of classes after, from 1 to 2^31 - 2.
        kept: Distinct old ids `[k]`, k at most `num_classes`; None for all below `num_classes`,
            which keep their ids.
        features: Features of the new classes, for an `ItemTower`; or None.

    Raises:
        ValueError: If `num_classes` is out of range, or `kept` is not a vector of distinct old
            ids.
    """

    def __init__(
        self,
        num_before: int,
        num_classes: int,
        kept: TensorLike | None = None,
        features: Any = None,
    ) -> None:
        self.num_before, self.features = num_before, features
        self.num_classes = whole_number("num_classes", num_classes, most=MOST_CLASSES)
        if kept is None:
            kept = np.arange(min(num_before, self.num_classes))
        self.kept = _checked_kept(kept, num_before, self.num_classes)
        self.num_new = self.num_classes - len(self.kept)

    @property
    def is_permutation(self) -> bool:
        """Whether no class is removed and none is new."""
        return len(self.kept) == self.num_before == self.num_classes

    @property
    def is_identity(self) -> bool:
        """Whether all classes keep their ids, and none is new."""
        return self.is_permutation and bool(np.all(self.kept == np.arange(self.num_before)))

    def new_ids(self) -> np.ndarray:
        """Returns the new id of each old class, int64 `[num_before]`; -1 for removed ones."""
        ids = np.full(self.num_before, -1)
        ids[self.kept] = np.arange(len(self.kept))
        return ids

    def moved(self, values: np.ndarray, of_new: float) -> np.ndarray:
        """Returns numbers of the old classes by the new ids; `of_new` for new classes."""
        return np.pad(values[self.kept], (0, self.num_new), constant_values=of_new)

    def move_rows(
        self,
        before: keras.Variable,
        after: keras.Variable,
        new_rows: tf.Tensor | keras.Variable | None = None,
    ) -> None:
        """Sets a variable to the class rows of another one, in the order of the new ids.

        New classes get the last rows of `new_rows`, or with None keep those of `after`.
        """
        # In blocks, because a copy of all rows may not fit into memory.
        for first, end in row_blocks((len(self.kept), *after.shape[1:])):
            set_rows(after, first, tf.gather(before.value, self.kept[first:end]))
        if self.num_new and new_rows is not None:
            last = tf.convert_to_tensor(new_rows)
            last = last[last.shape[0] - self.num_new :]
            set_rows(after, len(self.kept), tf.cast(last, after.dtype))

    def copy(self, before: keras.Variable, after: keras.Variable) -> None:
        """Copies a variable. If the shapes differ, it raises a ValueError."""
        if tuple(before.shape) != tuple(after.shape):
            raise ValueError(
                f"Variable '{before.path}' has the shape {tuple(before.shape)} in a model of "
                f"{self.num_before} classes, and {tuple(after.shape)} in one of "
                f"{self.num_classes}. Only variables of the class output layer, of "
                "its sampler and of a tied table can be resized, with their optimizer slots. "
                "Remove other variables that depend on the number of classes from the model, "
                "or build the new model yourself."
            )
        after.assign(before)


def _checked_kept(kept: TensorLike, num_before: int, num_classes: int) -> np.ndarray:
    """Checks `kept` and returns it as int64."""
    ids = np.asarray(kept)
    if ids.size == 0 and ids.ndim == 1:
        return np.zeros(0, np.int64)
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(
            "`kept` must be a list of old class ids in their new order. Received: an array of "
            f"shape {ids.shape} and dtype {ids.dtype}. For a mask, pass np.flatnonzero(mask)."
        )
    ids = ids.astype(np.int64)
    if ids.min() < 0 or ids.max() >= num_before:
        wrong = ids[(ids < 0) | (ids >= num_before)][0]
        raise ValueError(
            f"`kept` must be old class ids, from 0 to {num_before - 1}. Received: {wrong}. "
            "Omit new classes: they follow the kept ones."
        )
    distinct, times = np.unique(ids, return_counts=True)
    if len(distinct) < len(ids):
        place = int(np.argmax(times > 1))
        raise ValueError(
            f"`kept` must name each class once. Received class {distinct[place]} "
            f"{times[place]} times. np.unique(kept) removes repeats."
        )
    if len(ids) > num_classes:
        raise ValueError(
            f"`kept` names {len(ids)} classes, more than num_classes={num_classes}. Raise "
            "`num_classes`, or keep fewer."
        )
    return ids
