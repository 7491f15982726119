"""Reads the text format of the Extreme Classification Repository.

The first line is `num_examples num_features num_labels`. Each further line is an example,
`label,label feature:value feature:value ...`, with numbers from 0 and finite values. A line
that begins with a space is an example without labels. Windows line endings, and blank lines
after the last example, are accepted.
"""

import dataclasses
import os

import numpy as np

from tf_largeout.datasets.errors import SourceFileError
from tf_largeout.datasets.hashing import md5_uint64
from tf_largeout.datasets.progress import tqdm
from tf_largeout.datasets.ragged import Ragged

_MAX_NUMBER = 2**31 - 1  # Ids are int32.
_MAX_LABELS = 10**8  # Or the size of the file in bytes. All of them become classes.
_MAX_HEADER = 200  # Characters, in case the file has no line breaks.


@dataclasses.dataclass(frozen=True)
class XmcFile:
    """The content of a file. Features and labels have the same numbers as in the file.

    Attributes:
        num_features, num_labels: As in the header.
        features: int32 feature numbers, one row per example.
        weights: float32, the value of each of `features.values`.
        labels: int32 label numbers, one row per example, without repeats.
        hashes: uint64, a hash of each example's features.
    """

    num_features: int
    num_labels: int
    features: Ragged
    weights: np.ndarray
    labels: Ragged
    hashes: np.ndarray


def read(path):
    """Reads a file and returns an `XmcFile`.

    Raises:
        SourceFileError: If the file cannot be read, is damaged or is truncated. The message
            shows the line and what was expected.
    """
    try:
        with open(path, encoding="ascii", errors="surrogateescape") as file:
            sizes = _header(file.readline(_MAX_HEADER), path)
            rows = _rows(file, path, *sizes)
    except OSError as error:
        raise SourceFileError(f"{path} cannot be read: {error}.") from error
    labels, features, weights, texts = rows
    _, num_features, num_labels = sizes
    return XmcFile(
        num_features=num_features,
        num_labels=num_labels,
        features=_joined(features),
        weights=np.concatenate([np.zeros(0, np.float32), *weights]),
        labels=_joined(labels),
        hashes=md5_uint64(texts),
    )


def _header(line, path):
    """Checks and returns the three numbers of the first line."""
    words = line.split()
    if len(words) != 3 or not _are_numbers(words):
        raise SourceFileError(
            f"Expected the first line of {path} to be `num_examples num_features num_labels`. "
            f"It begins with {line[:60]!r}."
        )
    num_bytes = os.path.getsize(path)
    limits = {
        "examples": num_bytes,  # Each example takes at least one byte.
        "features": _MAX_NUMBER,
        "labels": min(max(_MAX_LABELS, num_bytes), _MAX_NUMBER),
    }
    for (what, limit), word in zip(limits.items(), words, strict=True):
        if int(word) > limit:
            raise SourceFileError(
                f"Expected at most {limit:,} {what} in the first line of {path}, a file of "
                f"{num_bytes:,} bytes, but it states {word}. The file may be truncated or "
                "damaged. Download it again."
            )
    return tuple(map(int, words))


def _rows(file, path, num_examples, num_features, num_labels):
    """Returns labels, features, weights, and the features as text: four lists, by example."""
    rows = []
    bar = tqdm(file, total=num_examples, desc=f"Reading {path.name}", unit=" examples")
    for number, line in enumerate(bar, start=2):
        if len(rows) >= num_examples and not line.strip():
            continue
        try:
            rows.append(_example(line, num_features, num_labels))
        except ValueError as error:
            raise SourceFileError(
                f"Expected line {number} of {path} to be `label,label feature:value "
                f"feature:value ...`. It begins with {line[:60]!r}: {error}"
            ) from error
    if len(rows) != num_examples:
        raise SourceFileError(
            f"Expected {num_examples:,} examples in {path}, as its first line states, but it "
            f"has {len(rows):,}. Download the file again."
        )
    return tuple(zip(*rows, strict=True)) or ((), (), (), ())


def _example(line, num_features, num_labels):
    label_text, _, feature_text = line.rstrip("\n").partition(" ")
    labels = label_text.split(",") if label_text else []
    pairs = [pair.partition(":") for pair in feature_text.split()]
    return (
        _numbers(dict.fromkeys(labels), num_labels, "label"),
        _numbers([feature for feature, _, _ in pairs], num_features, "feature"),
        _weights([value for _, _, value in pairs]),
        feature_text,
    )


def _numbers(words, below, what):
    if _are_numbers(words):
        numbers = list(map(int, words))
        if max(numbers, default=0) < below or not numbers:
            return np.array(numbers, np.int32)
    wrong = next(word for word in words if not _are_numbers([word]) or int(word) >= below)
    raise ValueError(
        f"{what} numbers must be integers from 0 to {below - 1}, but one is {wrong[:60]!r}."
    )


def _weights(words):
    """Converts words to float32. Raises a ValueError if one is not finite in float32."""
    with np.errstate(over="ignore"):
        weights = np.array(_values(words)).astype(np.float32)
    is_finite = np.isfinite(weights)
    if not is_finite.all():
        wrong = words[int(np.argmin(is_finite))]
        raise ValueError(f"values must be finite in float32, but one is {wrong[:60]!r}.")
    return weights


def _values(words):
    try:
        if "_" not in "".join(words):  # Python accepts underscores in numbers; the format not.
            return list(map(float, words))
    except ValueError:
        pass
    wrong = next(word for word in words if "_" in word or not _is_float(word))
    raise ValueError(f"values must be numbers such as 0.25, but one is {wrong[:60]!r}.")


def _is_float(word):
    try:
        float(word)
    except ValueError:
        return False
    return True


def _are_numbers(words):
    return all(map(str.isdigit, words)) and max(map(len, words), default=0) <= 18


def _joined(rows):
    values = np.concatenate([np.zeros(0, np.int32), *rows])
    return Ragged.from_lengths(values, [len(row) for row in rows])
