"""A long list of strings, stored as one block of bytes."""

import array
import dataclasses
from collections.abc import Iterable

import numpy as np

from tf_largeout.datasets.ragged import Ragged


@dataclasses.dataclass(frozen=True)
class TextTable:
    """Read-only list of strings that is stored as two arrays."""

    utf8: Ragged

    @classmethod
    def from_strings(cls, strings: Iterable[str]) -> "TextTable":
        """Creates a table from an iterable, without keeping all strings in memory."""
        values, lengths = bytearray(), array.array("q")
        for string in strings:
            encoded = string.encode("utf-8", "surrogateescape")
            values += encoded
            lengths.append(len(encoded))
        return cls(Ragged.from_lengths(np.frombuffer(values, np.uint8), lengths))

    def __len__(self) -> int:
        return len(self.utf8)

    def __getitem__(self, index: int) -> str:
        if not 0 <= index < len(self):
            raise IndexError(f"Expected 0 <= index < {len(self)}. Received: index={index}.")
        return self.utf8.row(index).tobytes().decode("utf-8", "replace")
