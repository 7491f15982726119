"""Reads interactions from delimited text: MovieLens, Gowalla, RecBole, Amazon's ratings."""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

from tf_largeout.datasets.errors import SourceFileError
from tf_largeout.datasets.extras import needed_by_datasets
from tf_largeout.datasets.next_item.columns import Chunk

CHUNK = 1_000_000  # rows


@dataclasses.dataclass(frozen=True)
class Layout:
    """The columns of a text file that contain users, items and times.

    Attributes:
        separator: One character.
        user, item, time: Positions of the columns, or their names in the header.
        is_date: Whether times look like 2010-10-19T23:55:27Z. Otherwise they are numbers.
    """

    separator: str
    user: int | str
    item: int | str
    time: int | str
    is_date: bool = False

    @property
    def columns(self) -> tuple[int | str, int | str, int | str]:
        return self.user, self.item, self.time


def read_delimited(file: IO[bytes], path: pathlib.Path, layout: Layout) -> Iterator[Chunk]:
    """Yields the interactions of a text file in chunks of a million rows.

    Args:
        file: The file, decompressed.
        path: For the messages.
        layout: Where its columns are.

    Raises:
        SourceFileError: If the file is empty, lacks a column, or is not delimited text.
    """
    with needed_by_datasets():
        import pandas as pd
    has_header = isinstance(layout.user, str)
    try:
        chunks = pd.read_csv(
            file,
            sep=layout.separator,
            header=0 if has_header else None,
            usecols=list(layout.columns),
            dtype=str,
            keep_default_na=False,
            chunksize=CHUNK,
        )
        for chunk in chunks:
            users, items, times = (chunk[column] for column in layout.columns)
            yield Chunk(
                users.to_numpy(object), items.to_numpy(object), _times(times, layout.is_date)
            )
    except pd.errors.EmptyDataError as error:
        raise SourceFileError(f"{path} is empty. Download it again.") from error
    except ValueError as error:  # also pandas' ParserError, and UnicodeDecodeError
        raise SourceFileError(
            f"Expected {path} to be text whose rows contain {_describe(layout)}. Reading it "
            f"failed with: {error}"
        ) from error


def _times(column: Any, is_date: bool) -> np.ndarray:
    """Returns float64 times, and NaN for other values."""
    import pandas as pd

    if not is_date:
        return pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
    dates = pd.to_datetime(column, format="%Y-%m-%dT%H:%M:%SZ", errors="coerce")
    seconds = dates.to_numpy("datetime64[s]")
    return np.where(np.isnat(seconds), np.nan, seconds.astype(np.int64))


def _describe(layout: Layout) -> str:
    separator = {"\t": "tabs", ",": "commas", ":": "'::'"}[layout.separator]
    if isinstance(layout.user, str):
        columns = _listed(layout.columns)
        return f"the columns {columns}, which a header names, separated by {separator}"
    return f"a user, an item and a time, separated by {separator}"


def _listed(columns: Sequence[int | str]) -> str:
    return ", ".join(map(str, columns))
