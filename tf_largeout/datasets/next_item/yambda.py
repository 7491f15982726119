"""Reads interactions from the Parquet files of Yambda."""

import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tf_largeout.datasets.errors import SourceFileError
from tf_largeout.datasets.extras import needed_by_datasets
from tf_largeout.datasets.next_item.columns import Chunk

_COLUMNS = ("uid", "item_id", "timestamp")
_EVENT = "event_type"  # Only in multi_event.parquet.
_BATCH = 65_536  # rows, which are users in the folder `sequential`


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
            rows = _BATCH if is_flat else _BATCH // 64
            for batch in file.iter_batches(rows, columns=columns):
                yield _chunk(batch, is_flat, events if has_events else None)
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


def _chunk(batch: Any, is_flat: bool, events: Sequence[str] | None) -> Chunk:
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
