"""`SelectedRows`: some rows of a matrix, gathered and put back."""

from typing import Any, NamedTuple

import tensorflow as tf


class SelectedRows(NamedTuple):
    """`P` of `B` rows.

    `take` and `put_back` are gathers, and each is the gradient of the other. TensorFlow's own
    gradient of a gather is sparse, and TensorFlow warns when it converts it to a dense one.

    Attributes:
        places: int64 `[P]`, the indices of the selected rows, increasing.
        numbers: int32 `[B]`. For a selected row, 1 plus its index in `places`; 0 for others.
    """

    places: tf.Tensor
    numbers: tf.Tensor

    @classmethod
    def where(cls, is_selected: tf.Tensor) -> "SelectedRows":
        """Returns the rows where `is_selected`, bool `[B]`, is true; row 0 if none is."""
        is_first = tf.range(tf.size(is_selected)) == 0
        is_selected |= is_first & ~tf.reduce_any(is_selected)
        numbers = tf.cumsum(tf.cast(is_selected, tf.int32))
        return cls(tf.where(is_selected)[:, 0], tf.where(is_selected, numbers, 0))

    def take(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the selected rows of `values`, `[B, ...]`, as `[P, ...]`."""

        @tf.custom_gradient
        def taken(values: tf.Tensor) -> tuple[tf.Tensor, Any]:
            return self._gather(values), self._scatter

        return taken(values)

    def put_back(self, values: tf.Tensor) -> tf.Tensor:
        """Returns `values`, `[P, ...]`, as `[B, ...]`, with 0 in the rows not selected."""

        @tf.custom_gradient
        def spread(values: tf.Tensor) -> tuple[tf.Tensor, Any]:
            return self._scatter(values), self._gather

        return spread(values)

    def _gather(self, values: tf.Tensor) -> tf.Tensor:
        return tf.gather(values, self.places)

    def _scatter(self, values: tf.Tensor) -> tf.Tensor:
        with_zero = tf.pad(values, [[1, 0]] + [[0, 0]] * (values.shape.rank - 1))
        return tf.gather(with_zero, self.numbers)
