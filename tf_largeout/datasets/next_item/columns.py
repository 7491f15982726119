"""Columns of interactions that are read in chunks."""

import dataclasses
import pathlib

import numpy as np

from tf_largeout.datasets.errors import SourceFileError
from tf_largeout.datasets.next_item.interactions import Interactions


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Some interactions of a file.

    Attributes:
        users: `[n]`, strings or integers.
        items: `[n]`, strings or integers.
        times: float64 `[n]`, seconds or milliseconds. NaN stands for a value that is not a
            time.
    """

    users: np.ndarray
    items: np.ndarray
    times: np.ndarray


class Columns:
    """Collects chunks. Takes 16 bytes per interaction, and stores each name once."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._users = _Names()
        self._items = _Names()
        self._chunks: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._num = 0

    def add(self, chunk: Chunk) -> None:
        """Adds a chunk. Raises a `SourceFileError` if a value is missing or invalid."""
        is_wrong = ~np.isfinite(chunk.times)
        for values in (chunk.users, chunk.items):
            if values.dtype.kind not in "iu":
                is_wrong |= values == ""
        if is_wrong.any():
            row = int(np.argmax(is_wrong))
            raise SourceFileError(
                f"Expected a user, an item and a time in each row of {self._path}. Row "
                f"{self._num + row + 1:,} has the user {str(chunk.users[row])[:60]!r} and the "
                f"item {str(chunk.items[row])[:60]!r}, and a value is missing or the time is "
                "not valid. The file may be damaged. Download it again."
            )
        self._chunks.append(
            (self._users.numbers(chunk.users), self._items.numbers(chunk.items), chunk.times)
        )
        self._num += len(chunk.users)

    def interactions(self, k_core: int) -> Interactions:
        """Returns the interactions of all chunks."""
        if not self._num:
            raise SourceFileError(f"{self._path} contains no interactions. Download it again.")
        users, items, times = (
            np.concatenate(parts) for parts in zip(*self._chunks, strict=True)
        )
        self._chunks.clear()
        names = self._users.array(), self._items.array()
        return Interactions.from_numbers(users, items, times, *names, k_core)

    def __len__(self) -> int:
        return self._num


class _Names:
    """Gives numbers to names, in the order of their first appearance."""

    def __init__(self) -> None:
        self._numbers: dict[str | int, int] = {}

    def numbers(self, values: np.ndarray) -> np.ndarray:
        """Returns int32 `[n]`, the numbers of the values."""
        import pandas as pd

        codes, distinct = pd.factorize(values)
        known = self._numbers
        numbers = [known.setdefault(name, len(known)) for name in distinct.tolist()]
        return np.array(numbers, np.int32)[codes]

    def array(self) -> np.ndarray:
        """Returns the names as strings, in the order of their numbers."""
        return np.array([str(name) for name in self._numbers], dtype=object)
