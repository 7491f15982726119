"""Readers of interactions: delimited text, JSON lines, and the Parquet files of Yambda."""

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

from tf_largeout.datasets.next_item.interactions import Interactions
from tf_largeout.datasets.sources import SourceFileError, needed_by_datasets

CHUNK = 1_000_000  # rows of delimited text
LINES = 100_000  # of JSON
BATCH = 65_536  # rows of Yambda, which are users in the folder `sequential`
_COLUMNS = ["uid", "item_id", "timestamp"]
_EVENT = "event_type"  # Only in multi_event.parquet of Yambda.


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
        self._users: dict[Any, int] = {}  # names and their numbers
        self._items: dict[Any, int] = {}
        self._chunks: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._num = 0

    def add(self, chunk: Chunk) -> None:
        """Adds a chunk. Raises a `SourceFileError` if a value is missing or invalid."""
        is_wrong = ~np.isfinite(chunk.times)
        for values in (chunk.users, chunk.items):
            if values.dtype.kind not in "iu":
                is_wrong |= (values == "") | (values != values)
        if is_wrong.any():
            row = int(np.argmax(is_wrong))
            raise SourceFileError(
                f"Expected a user, an item and a time in each row of {self._path}. Row "
                f"{self._num + row + 1:,} has the user {str(chunk.users[row])[:60]!r} and the "
                f"item {str(chunk.items[row])[:60]!r}, and a value is missing or the time is "
                "not valid. The file may be damaged. Download it again."
            )
        users, items = _numbered(self._users, chunk.users), _numbered(self._items, chunk.items)
        self._chunks.append((users, items, chunk.times))
        self._num += len(chunk.users)

    def interactions(self, k_core: int) -> Interactions:
        """Returns the interactions of all chunks."""
        if not self._num:
            raise SourceFileError(f"{self._path} contains no interactions. Download it again.")
        users, items, times = map(np.concatenate, zip(*self._chunks, strict=True))
        self._chunks.clear()
        user_names, item_names = (
            np.array([str(name) for name in numbers], object)
            for numbers in (self._users, self._items)
        )
        return Interactions.from_numbers(users, items, times, user_names, item_names, k_core)

    def __len__(self) -> int:
        return self._num


def _numbered(known: dict[Any, int], values: np.ndarray) -> np.ndarray:
    """Returns int32 `[n]`, the numbers of names, in the order of their first appearance."""
    import pandas as pd

    codes, distinct = pd.factorize(values)
    numbers = [known.setdefault(name, len(known)) for name in distinct.tolist()]
    return np.array(numbers, np.int32)[codes]


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

    def __str__(self) -> str:
        separator = {"\t": "tabs", ",": "commas", ":": "'::'"}[self.separator]
        if isinstance(self.user, int):
            return f"a user, an item and a time, separated by {separator}"
        columns = f"{self.user}, {self.item}, {self.time}"
        return f"the columns {columns}, which a header names, separated by {separator}"


def read_delimited(file: IO[bytes], path: pathlib.Path, layout: Layout) -> Iterator[Chunk]:
    """Yields the interactions of a text file in chunks of a million rows.

    Raises:
        SourceFileError: If the file is empty, lacks a column, or is not delimited text.
    """
    with needed_by_datasets():
        import pandas as pd
    names = [layout.user, layout.item, layout.time]
    try:
        chunks = pd.read_csv(
            file,
            sep=layout.separator,
            header=0 if isinstance(layout.user, str) else None,
            usecols=names,
            dtype=str,
            keep_default_na=False,
            chunksize=CHUNK,
        )
        for chunk in chunks:
            users, items, times = (chunk[name] for name in names)
            if layout.is_date:
                dates = pd.to_datetime(times, format="%Y-%m-%dT%H:%M:%SZ", errors="coerce")
                times = (dates - pd.Timestamp(0)) / pd.Timedelta(seconds=1)
            times = pd.to_numeric(times, errors="coerce").to_numpy(np.float64)
            yield Chunk(users.to_numpy(object), items.to_numpy(object), times)
    except pd.errors.EmptyDataError as error:
        raise SourceFileError(f"{path} is empty. Download it again.") from error
    except ValueError as error:  # also pandas' ParserError, and UnicodeDecodeError
        raise SourceFileError(
            f"Expected {path} to be text whose rows contain {layout}. Reading it failed with: "
            f"{error}"
        ) from error


def read_json_lines(
    file: IO[bytes], path: pathlib.Path, fields: tuple[str, str, str]
) -> Iterator[Chunk]:
    """Yields the interactions of a file of JSON objects in chunks of 100,000 lines.

    Raises:
        SourceFileError: If a line is not a JSON object with the three fields.
    """
    user, item, time = fields
    rows: list[tuple[str, str, float]] = []
    for number, line in enumerate(file, start=1):
        try:
            if line.strip():
                review = json.loads(line)
                rows.append((str(review[user]), str(review[item]), float(review[time])))
        except (ValueError, KeyError, TypeError) as error:
            raise SourceFileError(
                f"Expected line {number:,} of {path} to be a JSON object with the fields "
                f"{', '.join(fields)}. It begins with {line[:60]!r}: {error!r}."
            ) from error
        if len(rows) == LINES:
            yield _chunk_of(rows)
            rows = []
    if rows:
        yield _chunk_of(rows)


def _chunk_of(rows: list[tuple[str, str, float]]) -> Chunk:
    users, items, times = zip(*rows, strict=True)
    return Chunk(np.array(users, object), np.array(items, object), np.array(times))


def read_yambda(path: pathlib.Path, events: Sequence[str] | None) -> Iterator[Chunk]:
    """Yields the interactions of a file of the folder `flat` or `sequential`.

    Args:
        path: A Parquet file.
        events: The kinds of events to read from a file with several kinds, or None for all.

    Raises:
        SourceFileError: If the file is damaged, or lacks a column.
    """
    with needed_by_datasets():
        import pyarrow.parquet
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            missing = [name for name in _COLUMNS if name not in names]
            if missing:
                raise SourceFileError(
                    f"Expected the columns {', '.join(_COLUMNS)} in {path}. It lacks "
                    f"{', '.join(missing)}, and has {', '.join(names)}."
                )
            columns = [name for name in (*_COLUMNS, _EVENT) if name in names]
            # Few users at a time, because histories have up to tens of thousands of events.
            is_flat = not pyarrow.types.is_nested(file.schema_arrow.field("item_id").type)
            for batch in file.iter_batches(BATCH if is_flat else BATCH // 64, columns=columns):
                found = batch.to_pandas()
                if not is_flat:
                    found = found.explode(columns[1:]).dropna()
                if events is not None and _EVENT in columns:
                    found = found[found[_EVENT].isin(events)]
                users, items, times = (found[name].to_numpy(np.int64) for name in _COLUMNS)
                yield Chunk(users, items, times.astype(np.float64))
    except (pyarrow.ArrowException, OSError) as error:
        raise SourceFileError(
            f"Expected {path} to be a Parquet file of Yambda. Reading it failed with: {error} "
            "Download it again."
        ) from error
