"""Rows of different lengths, stored in two flat arrays."""

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Ragged:
    """Rows of different lengths. Row `i` is `values[offsets[i]:offsets[i + 1]]`.

    Attributes:
        values: Array of all rows, concatenated.
        offsets: int64 `[num_rows + 1]`, non-decreasing, from 0 to `len(values)`.
    """

    values: np.ndarray
    offsets: np.ndarray

    @classmethod
    def from_lengths(cls, values: np.ndarray, lengths: np.ndarray | Sequence[int]) -> "Ragged":
        """Cuts `values` into rows of the given lengths."""
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(np.asarray(values), offsets)

    @classmethod
    def from_padded(cls, matrix: np.ndarray, padding: int) -> "Ragged":
        """Returns the rows of a padded matrix `[num_rows, width]` without the padding."""
        kept = matrix != padding
        return cls.from_lengths(matrix[kept], kept.sum(axis=1))

    @classmethod
    def joined(cls, parts: "Sequence[Ragged]") -> "Ragged":
        """Concatenates the rows of all parts."""
        return cls.from_lengths(
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.lengths for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """int64 `[num_rows]`, the length of each row."""
        return np.diff(self.offsets)

    def row(self, index: int) -> np.ndarray:
        """Returns the values of one row."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def take(self, rows: np.ndarray) -> "Ragged":
        """Returns the rows with the given indices, in that order."""
        lengths = self.lengths[rows]
        result = Ragged.from_lengths(self.values[:0], lengths)
        within = np.arange(result.offsets[-1]) - np.repeat(result.offsets[:-1], lengths)
        values = self.values[np.repeat(self.offsets[rows], lengths) + within]
        return Ragged(values, result.offsets)

    def filtered(self, kept: np.ndarray) -> "Ragged":
        """Returns the rows without some values.

        Args:
            kept: bool, one per element of `values`.
        """
        kept_before = np.concatenate([[0], np.cumsum(kept)])
        return Ragged(self.values[kept], kept_before[self.offsets])

    def head(self, limit: int) -> "Ragged":
        """Returns the rows, truncated to at most `limit` values each."""
        within = np.arange(len(self.values)) - np.repeat(self.offsets[:-1], self.lengths)
        values = self.values[within < limit]
        return Ragged.from_lengths(values, np.minimum(self.lengths, limit))

    def padded(self, width: int, padding: int) -> np.ndarray:
        """Returns a matrix `[num_rows, width]`. `width` must be at least the longest row."""
        matrix = np.full((len(self), width), padding, self.values.dtype)
        matrix[np.arange(width) < self.lengths[:, None]] = self.values
        return matrix
