"""The published formats of interactions, and how to find and open their files."""

import contextlib
import dataclasses
import gzip
import pathlib
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, cast

from tf_largeout.datasets.errors import SourceFileError
from tf_largeout.datasets.next_item import movielens
from tf_largeout.datasets.next_item.delimited import Layout

AMAZON_2018 = ("reviewerID", "asin", "unixReviewTime")
AMAZON_2023 = ("user_id", "parent_asin", "timestamp")


@dataclasses.dataclass(frozen=True)
class Format:
    """A published format.

    Attributes:
        files: Patterns of the names of its files, the preferred ones first.
        layout: Layout of its text files. None for MovieLens, whose layouts depend on the name.
        fields: Names of the fields of its JSON files.
    """

    files: tuple[str, ...]
    layout: Layout | None = None
    fields: tuple[str, str, str] | None = None


_RATINGS = ("*.csv", "*.csv.gz")
FORMATS = {
    "movielens": Format((*movielens.LAYOUTS, "ml-*.zip")),
    "gowalla": Format(("loc-gowalla_totalCheckins.txt*",), Layout("\t", 0, 4, 1, is_date=True)),
    "yambda": Format(("*.parquet",)),
    "amazon_2014": Format(
        ("*.json", "*.json.gz", *_RATINGS), Layout(",", 0, 1, 3), AMAZON_2018
    ),
    "amazon_2018": Format(
        ("*.json", "*.json.gz", *_RATINGS), Layout(",", 1, 0, 3), AMAZON_2018
    ),
    "amazon_2023": Format(
        ("*.jsonl", "*.jsonl.gz", *_RATINGS), Layout(",", *AMAZON_2023), AMAZON_2023
    ),
    "recbole": Format(
        ("*.inter", "recbole-*.whl"),
        Layout("\t", "user_id:token", "item_id:token", "timestamp:float"),
    ),
}


def find_file(path: pathlib.Path, name: str) -> pathlib.Path:
    """Returns the file of a format: `path`, or the only such file in the folder `path`.

    Raises:
        SourceFileError: If the folder contains no such file, or several.
    """
    if path.is_file():
        return path
    patterns = FORMATS[name].files
    if not path.is_dir():
        raise SourceFileError(
            f"{path} is missing. Expected a file, or a folder with a file of the format "
            f"{name!r}: {' or '.join(patterns)}."
        )
    for pattern in patterns:
        found = sorted(path.glob(pattern))
        if len(found) == 1:
            return found[0]
        if found:
            raise SourceFileError(
                f"{path} contains several files of the format {name!r}: "
                f"{', '.join(file.name for file in found)}. Pass the path of one of them."
            )
    raise SourceFileError(
        f"{path} contains no file of the format {name!r}: {' or '.join(patterns)}."
    )


@contextlib.contextmanager
def opened(path: pathlib.Path, member: str | None = None) -> Iterator[IO[bytes]]:
    """Opens a file, a gzip file, or the file `member` of a zip archive, for reading bytes.

    Raises:
        SourceFileError: Within the context, if the file is damaged.
    """
    try:
        if member is not None:
            with zipfile.ZipFile(path) as archive, archive.open(member) as file:
                yield file
        elif path.suffix == ".gz":
            with gzip.open(path) as file:
                yield cast(IO[bytes], file)
        else:
            with path.open("rb") as file:
                yield file
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise SourceFileError(
            f"{path} cannot be read, or is damaged: {error} Download it again."
        ) from error


def members(path: pathlib.Path) -> list[str]:
    """Returns the names of the files of a zip archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, OSError) as error:
        raise SourceFileError(
            f"Expected {path} to be a zip archive: {error} Download it again."
        ) from error
