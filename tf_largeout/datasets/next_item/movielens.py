"""The files of MovieLens, as published by GroupLens."""

import hashlib
import pathlib

from tf_largeout.datasets.errors import SourceFileError
from tf_largeout.datasets.next_item.delimited import Layout

_CHUNK = 1 << 20

LAYOUTS = {
    "u.data": Layout("\t", 0, 1, 3),
    "ratings.dat": Layout(":", 0, 2, 6),  # Columns are separated by "::".
    "ratings.csv": Layout(",", "userId", "movieId", "timestamp"),
}
# As in https://files.grouplens.org/datasets/movielens/NAME.zip.md5.
_MD5 = {
    "ml-100k": "0e33842e24a9c977be4e0107933c0723",
    "ml-1m": "c4d9eecfca2ab87c1945afe126590906",
    "ml-10m": "ce571fd55effeba0271552578f2648bd",
    "ml-20m": "cd245b17a1ae2cc31bb14903e1204af3",
    "ml-25m": "6b51fb2759a8657d3bfcbfc42b592ada",
    "ml-32m": "d472be332d4daa821edc399621853b57",
}
_NUM_RATINGS = {
    "ml-100k": 100_000,
    "ml-1m": 1_000_209,
    "ml-10m": 10_000_054,
    "ml-20m": 20_000_263,
    "ml-25m": 25_000_095,
    "ml-32m": 32_000_204,
}


def check_archive(path: pathlib.Path) -> None:
    """Raises a `SourceFileError` if a published zip file has another md5."""
    expected = _MD5.get(path.stem)
    if expected is None:
        return
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK), b""):
            digest.update(chunk)
    if digest.hexdigest() != expected:
        raise SourceFileError(
            f"{path} is damaged, or is another file: expected md5 {expected}, found "
            f"{digest.hexdigest()}. Download it again from "
            f"https://files.grouplens.org/datasets/movielens/{path.name}."
        )


def check_number(folder: str, path: pathlib.Path, num_ratings: int) -> None:
    """Raises a `SourceFileError` if a file in a folder like ml-1m is not complete.

    GroupLens publishes no checksums of the extracted files.
    """
    expected = _NUM_RATINGS.get(folder)
    if expected is not None and num_ratings != expected:
        raise SourceFileError(
            f"Expected {expected:,} ratings in {path}, as published, but it has "
            f"{num_ratings:,}. Extract the archive again. To use only a part of the "
            f"data, give the folder another name than {folder}."
        )
