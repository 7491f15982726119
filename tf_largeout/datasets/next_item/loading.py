"""The functions `interactions` and `ml_100k`."""

import os
import pathlib
from collections.abc import Iterator, Sequence

from tf_largeout.arguments import one_of, whole_number
from tf_largeout.datasets.errors import SourceFileError
from tf_largeout.datasets.extras import needed_by_datasets
from tf_largeout.datasets.folders import Folders
from tf_largeout.datasets.next_item import movielens
from tf_largeout.datasets.next_item.columns import Chunk, Columns
from tf_largeout.datasets.next_item.delimited import Layout, read_delimited
from tf_largeout.datasets.next_item.formats import FORMATS, find_file, members, opened
from tf_largeout.datasets.next_item.interactions import Interactions
from tf_largeout.datasets.next_item.json_lines import read_json_lines
from tf_largeout.datasets.next_item.yambda import read_yambda

_ML_100K = "recbole/dataset_example/ml-100k/ml-100k.inter"  # in RecBole's wheel


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
    with needed_by_datasets():
        from tf_largeout.datasets.progress import tqdm
    columns = Columns(file)
    with tqdm(desc=f"Reading {file.name}", unit=" interactions", unit_scale=True) as bar:
        for chunk in _chunks(file, format, events):
            columns.add(chunk)
            bar.update(len(chunk.users))
    if format == "movielens":
        folder = file.stem if file.suffix == ".zip" else file.parent.name
        movielens.check_number(folder, file, len(columns))
    return columns.interactions(k_core)


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
    from tf_largeout.datasets.next_item.wheel import WHEEL

    wheel = WHEEL.ensure(Folders.of_data_dir(data_dir).manual)
    return interactions(wheel, "recbole", k_core=k_core)


def _chunks(path: pathlib.Path, format: str, events: Sequence[str] | None) -> Iterator[Chunk]:
    if format == "yambda":
        yield from read_yambda(path, events)
        return
    chosen = FORMATS[format]
    member = _member(path, format)
    with opened(path, member) as file:
        if chosen.fields and ".json" in path.name:
            yield from read_json_lines(file, path, chosen.fields)
        else:
            layout = chosen.layout or _movielens_layout(member or path.name, path)
            yield from read_delimited(file, path, layout)


def _member(path: pathlib.Path, format: str) -> str | None:
    """Returns the name of the file in an archive, or None if `path` is not an archive."""
    if path.suffix == ".whl":
        return _ML_100K
    if path.suffix != ".zip":
        return None
    names = members(path)
    if format == "movielens":
        movielens.check_archive(path)
        wanted = list(movielens.LAYOUTS)
    else:
        wanted = [pathlib.PurePath(pattern).suffix for pattern in FORMATS[format].files]
    found = [name for name in names if name.endswith(tuple(wanted))]
    if len(found) != 1:
        raise SourceFileError(
            f"Expected one file {' or '.join(wanted)} in {path}. It contains "
            f"{', '.join(found or names)[:200]}."
        )
    return found[0]


def _movielens_layout(name: str, path: pathlib.Path) -> Layout:
    layout = movielens.LAYOUTS.get(pathlib.PurePosixPath(name).name)
    if layout is None:
        raise SourceFileError(
            f"Expected a file of MovieLens: {', '.join(movielens.LAYOUTS)} or a zip file. "
            f"Received: {path}."
        )
    return layout
