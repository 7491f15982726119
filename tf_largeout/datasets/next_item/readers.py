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
_COLUMNS = ("uid", "item_id", "timestamp")
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
            f"Expected {path} to be text whose rows contain {_described(layout)}. Reading it "
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


def _described(layout: Layout) -> str:
    separator = {"\t": "tabs", ",": "commas", ":": "'::'"}[layout.separator]
    if isinstance(layout.user, str):
        columns = ", ".join(map(str, layout.columns))
        return f"the columns {columns}, which a header names, separated by {separator}"
    return f"a user, an item and a time, separated by {separator}"


def read_json_lines(
    file: IO[bytes], path: pathlib.Path, fields: tuple[str, str, str]
) -> Iterator[Chunk]:
    """Yields the interactions of a file in chunks of 100,000 lines.

    Args:
        file: The file, decompressed.
        path: For the messages.
        fields: The names of the user, the item and the time.

    Raises:
        SourceFileError: If a line is not a JSON object with these fields.
    """
    rows: list[tuple[str, str, float]] = []
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        rows.append(_json_row(line, number, path, fields))
        if len(rows) == LINES:
            yield _json_chunk(rows)
            rows = []
    if rows:
        yield _json_chunk(rows)


def _json_row(
    line: bytes, number: int, path: pathlib.Path, fields: tuple[str, str, str]
) -> tuple[str, str, float]:
    user, item, time = fields
    try:
        review = json.loads(line)
        return str(review[user]), str(review[item]), float(review[time])
    except (ValueError, KeyError, TypeError) as error:
        raise SourceFileError(
            f"Expected line {number:,} of {path} to be a JSON object with the fields "
            f"{', '.join(fields)}. It begins with {line[:60]!r}: {error!r}."
        ) from error


def _json_chunk(rows: list[tuple[str, str, float]]) -> Chunk:
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
        import pyarrow
        import pyarrow.parquet
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            _check_columns(path, file.schema_arrow.names)
            has_events = _EVENT in file.schema_arrow.names
            columns = [*_COLUMNS, *([_EVENT] if has_events else [])]
            # Few users at a time, because histories have up to tens of thousands of events.
            is_flat = not pyarrow.types.is_nested(file.schema_arrow.field("item_id").type)
            rows = BATCH if is_flat else BATCH // 64
            for batch in file.iter_batches(rows, columns=columns):
                yield _yambda_chunk(batch, is_flat, events if has_events else None)
    except (pyarrow.ArrowException, OSError) as error:
        raise SourceFileError(
            f"Expected {path} to be a Parquet file of Yambda. Reading it failed with: {error} "
            "Download it again."
        ) from error


def _check_columns(path: pathlib.Path, names: Sequence[str]) -> None:
    missing = [name for name in _COLUMNS if name not in names]
    if missing:
        raise SourceFileError(
            f"Expected the columns {', '.join(_COLUMNS)} in {path}. It lacks "
            f"{', '.join(missing)}, and has {', '.join(names)}."
        )


def _yambda_chunk(batch: Any, is_flat: bool, events: Sequence[str] | None) -> Chunk:
    if is_flat:
        users, items, times = (batch.column(name).to_numpy(False) for name in _COLUMNS)
        kinds = batch.column(_EVENT) if events is not None else None
    else:
        lists = batch.column("item_id")
        lengths = np.diff(lists.offsets.to_numpy())
        users = np.repeat(batch.column("uid").to_numpy(False), lengths)
        items = lists.flatten().to_numpy(False)
        times = batch.column("timestamp").flatten().to_numpy(False)
        kinds = batch.column(_EVENT).flatten() if events is not None else None
    chunk = Chunk(users, items, times.astype(np.float64))
    if kinds is None or events is None:
        return chunk
    kept = np.isin(np.asarray(kinds.to_pylist(), object).astype(str), list(events))
    return Chunk(chunk.users[kept], chunk.items[kept], chunk.times[kept])
