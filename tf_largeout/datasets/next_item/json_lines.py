"""Reads interactions from Amazon's reviews, one JSON object per line."""

import json
import pathlib
from collections.abc import Iterator
from typing import IO

import numpy as np

from tf_largeout.datasets.errors import SourceFileError
from tf_largeout.datasets.next_item.columns import Chunk

_CHUNK = 100_000  # lines


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
        rows.append(_row(line, number, path, fields))
        if len(rows) == _CHUNK:
            yield _chunk(rows)
            rows = []
    if rows:
        yield _chunk(rows)


def _row(
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


def _chunk(rows: list[tuple[str, str, float]]) -> Chunk:
    users, items, times = zip(*rows, strict=True)
    return Chunk(np.array(users, object), np.array(items, object), np.array(times))
