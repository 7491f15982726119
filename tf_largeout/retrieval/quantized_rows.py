"""`QuantizedRows`: the class rows of an index in 8 bits per number."""

from typing import Any

import numpy as np
import tensorflow as tf

from tf_largeout.arguments import MOST_CLASSES
from tf_largeout.classes.class_matrix import RowScorer
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.classes.quantized_rows import (
    CODE_OF_ZERO,
    CODES_TOGETHER,
    GROUP_ROWS,
    PackedTable,
    empty_aligned,
    pack_rows,
    padded_width,
)
from tf_largeout.classes.row_sources import RowSource
from tf_largeout.ops.class_scan_ops import PackedClasses
from tf_largeout.retrieval.rows import Rows, bias_of, in_place, require_finite, rows_of
from tf_largeout.types import TensorLike

# Scale, bias, error, norm and highest bias of a class that no search finds.
_NO_CLASS = np.array([0.0, -np.inf, 0.0, 0.0, -np.inf], np.float32)


class QuantizedRows(Rows):
    """`Rows` without float32 rows: see `PackedTable`.

    Args:
        codes, scales: The arrays of `PackedClasses`.
        alive: bool `[num_classes]`, false for removed classes.
        dim: Width of the rows.
        has_bias: Whether the classes have biases.
    """

    def __init__(
        self,
        codes: np.ndarray,
        scales: np.ndarray,
        alive: np.ndarray,
        dim: int,
        has_bias: bool,
    ) -> None:
        self._codes, self._scales, self.alive = codes, scales, alive
        packed = PackedClasses(in_place(codes), in_place(scales))
        self._table = PackedTable.of(packed, (len(alive), dim), has_bias, "index")
        self.matrix = RowScorer(RowSource([self._table]))

    @classmethod
    def of(cls, class_embeddings: TensorLike, bias: TensorLike | None) -> "QuantizedRows":
        """As `Rows.of`. It converts an array in blocks."""
        if not isinstance(class_embeddings, np.ndarray):
            class_embeddings = tf.convert_to_tensor(class_embeddings)
        shape = tuple(class_embeddings.shape)
        rows_of("class_embeddings", class_embeddings[:1] if shape else class_embeddings)
        if not 1 <= shape[0] <= MOST_CLASSES:
            raise ValueError(
                f"`class_embeddings` must have 1 to {MOST_CLASSES} rows. Received: {shape[0]}."
            )
        if bias is not None:
            bias = bias_of(bias, shape[0])

        def part(first: int, end: int) -> tuple[tf.Tensor, tf.Tensor | None]:
            rows = rows_of("class_embeddings", class_embeddings[first:end])
            require_finite("class_embeddings", rows, first)
            return rows, None if bias is None else bias[first:end]

        codes, scales = pack_rows(part, shape)
        return cls(codes, scales, np.ones(shape[0], bool), shape[1], bias is not None)

    @classmethod
    def restored(cls, arrays: dict[str, np.ndarray], dim: int, has_bias: bool) -> Any:
        """Restores rows from the result of `arrays`, without a copy."""
        alive = np.array(arrays["alive"])
        return cls(arrays["codes"], arrays["scales"], alive, dim, has_bias)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"codes": self._codes, "scales": self._scales, "alive": self.alive}

    def added(self, class_embeddings: TensorLike, bias: TensorLike | None) -> "QuantizedRows":
        more = self._new(class_embeddings, bias, "add")
        codes, numbers = (
            np.concatenate(parts) for parts in zip(self._by_row(), more._by_row(), strict=True)
        )
        return self._with(codes, numbers, np.concatenate([self.alive, more.alive]))

    def updated(
        self, ids: np.ndarray, class_embeddings: TensorLike, bias: TensorLike | None
    ) -> "QuantizedRows":
        if bias is None and self.matrix.has_bias:
            bias = self._table.biases(tf.constant(ids))
        new = self._new(class_embeddings, bias, "update")
        self._require_distinct(ids, len(new.alive))
        codes, numbers = self._by_row()
        codes[ids], numbers[ids] = new._by_row()
        return self._with(codes, numbers, self.alive)

    def removed(self, ids: np.ndarray) -> "QuantizedRows":
        alive = self.alive.copy()
        alive[ids] = False
        codes, numbers = self._by_row()
        codes[ids], numbers[ids] = CODE_OF_ZERO, _NO_CLASS
        return self._with(codes, numbers, alive)

    def agree_in_a_sample(self, scorer: ClassScorer) -> bool:
        """As `Rows.agree_in_a_sample`: whether the rows of `scorer` are rounded to these."""
        ids = self._sample()
        errors = tf.abs(self.matrix.rows(ids) - scorer.rows(ids))
        # The layer may compute its rows, such as normalized ones, with other rounding errors.
        most = self._table.largest_errors(ids) + 1e-7
        zeros = tf.zeros([1, self.matrix.dim])  # as a query: its logits are the biases
        own, other = (one.dots(zeros, ids[tf.newaxis]) for one in (self.matrix, scorer))
        are_near = bool(tf.reduce_all(errors <= most[:, tf.newaxis]))
        return are_near and np.allclose(own, other, rtol=1e-5, atol=1e-7)

    def _new(
        self, class_embeddings: TensorLike, bias: TensorLike | None, method: str
    ) -> "QuantizedRows":
        """Checks rows to add, or to replace others by, and quantizes them."""
        new, new_bias = self._checked(class_embeddings, bias, method)
        return QuantizedRows.of(new, new_bias)

    def _by_row(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns copies with a line per class: uint8 `[n, width]`, and float32 `[n, 5]`."""
        count, width = len(self.alive), padded_width(self.matrix.dim)
        groups = -(-count // GROUP_ROWS)
        codes = self._codes.reshape(groups, -1, GROUP_ROWS, CODES_TOGETHER)
        codes = codes.swapaxes(1, 2).reshape(-1, width)[:count]
        parts = np.split(self._scales, [2 * GROUP_ROWS * groups])
        numbers = [
            part.reshape(groups, size, GROUP_ROWS).swapaxes(1, 2).reshape(-1, size)
            for part, size in zip(parts, (2, 3), strict=True)
        ]
        return np.array(codes), np.concatenate(numbers, axis=1)[:count]

    def _with(
        self, codes: np.ndarray, numbers: np.ndarray, alive: np.ndarray
    ) -> "QuantizedRows":
        """Returns rows from the inverse of `_by_row`."""
        width, groups = codes.shape[1], -(-len(codes) // GROUP_ROWS)
        padding = groups * GROUP_ROWS - len(codes)
        codes = np.pad(codes, [(0, padding), (0, 0)], constant_values=CODE_OF_ZERO)
        numbers = np.concatenate([numbers, np.tile(_NO_CLASS, (padding, 1))])
        packed = empty_aligned((groups * GROUP_ROWS * width,), np.uint8)
        packed.reshape(groups, -1, GROUP_ROWS, CODES_TOGETHER)[:] = codes.reshape(
            groups, GROUP_ROWS, -1, CODES_TOGETHER
        ).swapaxes(1, 2)
        scales = empty_aligned((groups * GROUP_ROWS * 5,), np.float32)
        parts = np.split(scales, [2 * GROUP_ROWS * groups])
        for part, of_rows in zip(parts, np.split(numbers, [2], axis=1), strict=True):
            size = of_rows.shape[1]
            part.reshape(groups, size, GROUP_ROWS)[:] = of_rows.reshape(
                groups, GROUP_ROWS, size
            ).swapaxes(1, 2)
        return QuantizedRows(packed, scales, alive, self.matrix.dim, self.matrix.has_bias)
