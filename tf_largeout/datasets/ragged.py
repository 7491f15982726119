"""Rows of different lengths, stored in two flat arrays."""

import array
import dataclasses
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np

_Rows = TypeVar("_Rows", bound="Ragged")


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
    def from_lengths(
        cls: type[_Rows], values: np.ndarray, lengths: np.ndarray | Sequence[int]
    ) -> _Rows:
        """Cuts `values` into rows of the given lengths."""
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(np.asarray(values), offsets)

    @classmethod
    def from_padded(cls: type[_Rows], matrix: np.ndarray, padding: int) -> _Rows:
        """Returns the rows of a padded matrix `[num_rows, width]` without the padding."""
        kept = matrix != padding
        return cls.from_lengths(matrix[kept], kept.sum(axis=1))

    @classmethod
    def joined(cls: type[_Rows], parts: "Sequence[Ragged]") -> _Rows:
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

    @property
    def places(self) -> np.ndarray:
        """int64, the place of each value in its row."""
        return np.arange(len(self.values)) - np.repeat(self.offsets[:-1], self.lengths)

    def row(self, index: int) -> np.ndarray:
        """Returns the values of one row."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def take(self: _Rows, rows: np.ndarray) -> _Rows:
        """Returns the rows with the given indices, in that order."""
        lengths = self.lengths[rows]
        starts = np.cumsum(lengths) - lengths
        within = np.arange(lengths.sum()) - np.repeat(starts, lengths)
        values = self.values[np.repeat(self.offsets[rows], lengths) + within]
        return self.from_lengths(values, lengths)

    def filtered(self: _Rows, kept: np.ndarray) -> _Rows:
        """Returns the rows without the values that are not `kept`, a bool each."""
        kept_before = np.concatenate([[0], np.cumsum(kept)])
        return type(self)(self.values[kept], kept_before[self.offsets])

    def padded(self, width: int, padding: int) -> np.ndarray:
        """Returns a matrix `[num_rows, width]`. `width` must be at least the longest row."""
        matrix = np.full((len(self), width), padding, self.values.dtype)
        matrix[np.arange(width) < self.lengths[:, None]] = self.values
        return matrix


class TextTable(Ragged):
    """A read-only list of strings, stored in UTF-8 as one block of bytes."""

    @classmethod
    def from_strings(cls, strings: Iterable[str]) -> "TextTable":
        """Creates a table from an iterable, without keeping all strings in memory."""
        values, lengths = bytearray(), array.array("q")
        for string in strings:
            encoded = string.encode("utf-8", "surrogateescape")
            values += encoded
            lengths.append(len(encoded))
        return cls.from_lengths(np.frombuffer(values, np.uint8), lengths)

    def __getitem__(self, index: int) -> str:
        if not 0 <= index < len(self):
            raise IndexError(f"Expected 0 <= index < {len(self)}. Received: index={index}.")
        return self.row(index).tobytes().decode("utf-8", "replace")
