"""Encodes names as bags of hashed character n-grams."""

import collections.abc
import unicodedata

import numpy as np

from tf_largeout.arguments import whole_number

VOCABULARY_SIZE = 1 << 18
MAX_FEATURES = 40
NGRAM_LENGTHS = (2, 3, 4)

_BOUNDARY = "\u2423"  # OPEN BOX, inserted before, between and after the words of a name.
_PADDING_ID = 0
_CHUNK = 1 << 16


def encode(names, max_features=MAX_FEATURES):
    """Encodes names as feature ids, as in the dataset. Use it for names that users type.

    A name is normalised (NFKC) and case-folded, and boundary marks are inserted around its
    words. Each of its character 2-, 3- and 4-grams is hashed to an id in
    `1 ... VOCABULARY_SIZE - 1`.

    Args:
        names: List of strings.
        max_features: Width of the result. If a name has more n-grams, the longest ones at the
            end of the name are dropped. Defaults to `MAX_FEATURES`, as in the dataset, which is
            enough for all n-grams of most names.

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
    rows = np.full((len(names), max_features), _PADDING_ID, np.int32)
    for start in range(0, len(names), _CHUNK):
        chunk = names[start : start + _CHUNK]
        _fill_rows(rows[start : start + _CHUNK], [_marked(name) for name in chunk])
    return rows


def _marked(name):
    words = unicodedata.normalize("NFKC", name).casefold().split()
    return _BOUNDARY + _BOUNDARY.join(words) + _BOUNDARY


def _fill_rows(rows, texts):
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    utf32 = "".join(texts).encode("utf-32-le", "surrogatepass")
    characters = np.frombuffer(utf32, "<u4").astype(np.uint64)
    row_of = np.repeat(np.arange(len(texts)), lengths)
    ends = np.cumsum(lengths)
    position = np.arange(len(characters)) - (ends - lengths)[row_of]
    column_start = np.zeros(len(texts), np.int64)
    for n in NGRAM_LENGTHS:
        # The n-grams that start at a character and end in the same name.
        starts = np.flatnonzero(position + n <= lengths[row_of])
        columns = column_start[row_of[starts]] + position[starts]
        starts, columns = starts[columns < rows.shape[1]], columns[columns < rows.shape[1]]
        rows[row_of[starts], columns] = _hashed_ngrams(characters, starts, n)
        column_start += np.maximum(lengths - n + 1, 0)


def _hashed_ngrams(characters, starts, n):
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
