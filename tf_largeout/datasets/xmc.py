"""Datasets in the text format of the Extreme Classification Repository.

The first line is `num_examples num_features num_labels`. Each further line is an example,
`label,label feature:value feature:value ...`, with numbers from 0 and finite values. A line
that begins with a space is an example without labels. Windows line endings, and blank lines
after the last example, are accepted.
"""

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Sequence
from typing import IO, Any

import numpy as np

from tf_largeout.datasets.corpus import Corpus, cached, frequency_order, md5_uint64
from tf_largeout.datasets.ragged import Ragged, TextTable
from tf_largeout.datasets.sources import Folders, SourceFileError, progress

BY_HAND = (
    "Download a dataset in the format `N D L`, `l1,l2 f:v ...` from the Extreme "
    "Classification Repository. Copy its training and test files to `xmc/NAME/train.txt` and "
    "`xmc/NAME/test.txt` in the folder for manual downloads."
)
_PARSER_VERSION = 3  # Increase it when the parsed form changes.
_MAX_NUMBER = 2**31 - 1  # Ids are int32.
_MAX_LABELS = 10**8  # Or the size of the file in bytes. All of them become classes.
_MAX_HEADER = 200  # Characters, in case the file has no line breaks.


def corpus(folders: Folders, name: str) -> Corpus:
    """Returns the corpus of `train.txt` and `test.txt` in the folder `manual/xmc/NAME`."""
    if not name:
        raise ValueError(f'`load("xmc/NAME")` needs the name of a folder. {BY_HAND}')
    if name in (".", "..") or not set(name).isdisjoint("/\\\0"):
        raise ValueError(
            f'NAME in `load("xmc/NAME")` must be the name of one folder, without a path. '
            f"Received: {name!r}. {BY_HAND}"
        )
    paths = [folders.manual / "xmc" / name / file for file in ("train.txt", "test.txt")]
    stats = [_stat(path) for path in paths]
    seen = repr([(stat.st_size, stat.st_mtime_ns) for stat in stats]).encode()
    key = hashlib.sha256(seen).hexdigest()[:12]
    cache = folders.parsed / f"xmc-{name}-v{_PARSER_VERSION}-{key}.npz"
    return cached(cache, Corpus, lambda: parse(*paths))


def _stat(path: pathlib.Path) -> os.stat_result:
    try:
        if path.is_file():
            return path.stat()
    except OSError as error:
        raise SourceFileError(f"{path} cannot be read: {error}. {BY_HAND}") from error
    raise SourceFileError(f"{path} is missing. {BY_HAND}")


def parse(train_path: pathlib.Path, test_path: pathlib.Path) -> Corpus:
    """Returns the `Corpus` of two files. Labels that do not occur are classes, as in papers."""
    train, test = read(train_path), read(test_path)
    if not len(train.labels):
        raise SourceFileError(f"{train_path} has no examples. Download the file again.")
    for what in ("num_features", "num_labels"):
        expected, found = getattr(train, what), getattr(test, what)
        if found != expected:
            raise SourceFileError(
                f"Expected {what} of {test_path} to be {expected}, as in {train_path}, but it "
                f"is {found}. The two files belong to different datasets."
            )
    counts = np.bincount(train.labels.values, minlength=train.num_labels)
    order, rank = frequency_order(counts)
    features = Ragged.joined([train.features, test.features])
    labels = Ragged.joined([train.labels, test.labels])
    return Corpus(
        features=Ragged(features.values + np.int32(1), features.offsets),  # 0 is padding.
        labels=Ragged(rank[labels.values], labels.offsets),
        feature_weights=np.concatenate([train.weights, test.weights]),
        example_texts=TextTable.from_strings(
            f"{split} example {number}"
            for split, file in (("train", train), ("test", test))
            for number in range(len(file.labels))
        ),
        class_texts=TextTable.from_strings(f"label {number}" for number in order),
        group_hashes=np.concatenate([train.hashes, test.hashes]),
        num_train=len(train.labels),
        vocabulary_size=train.num_features + 1,
    )


@dataclasses.dataclass(frozen=True)
class XmcFile:
    """The content of a file, with its numbers of features and labels.

    `features` and `labels` have a row of int32 numbers per example, the labels without repeats.
    `weights` are float32, one for each of `features.values`. `hashes` are uint64, of the
    features of each example.
    """

    num_features: int
    num_labels: int
    features: Ragged
    weights: np.ndarray
    labels: Ragged
    hashes: np.ndarray


def read(path: pathlib.Path) -> XmcFile:
    """Reads a file; a `SourceFileError` shows the wrong line and what was expected."""
    try:
        with open(path, encoding="ascii", errors="surrogateescape") as file:
            sizes = _header(file.readline(_MAX_HEADER), path)
            rows = _rows(file, path, *sizes)
    except OSError as error:
        raise SourceFileError(f"{path} cannot be read: {error}.") from error
    labels, features, weights, texts = rows
    values = np.concatenate([np.zeros(0, np.float32), *weights])
    parts = _joined(features), values, _joined(labels), md5_uint64(texts)
    return XmcFile(sizes[1], sizes[2], *parts)


def _header(line: str, path: pathlib.Path) -> tuple[int, ...]:
    """Checks and returns the three numbers of the first line."""
    words = line.split()
    if len(words) != 3 or not all(word.isdigit() and len(word) <= 18 for word in words):
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


def _rows(
    file: IO[str], path: pathlib.Path, num_examples: int, num_features: int, num_labels: int
) -> tuple[Any, ...]:
    """Returns labels, features, weights, and the features as text: four lists, by example."""
    rows: list[tuple[Any, ...]] = []
    bar = progress(file, total=num_examples, desc=f"Reading {path.name}", unit=" examples")
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


def _example(line: str, num_features: int, num_labels: int) -> tuple[Any, ...]:
    label_text, _, feature_text = line.rstrip("\n").partition(" ")
    labels = label_text.split(",") if label_text else []
    pairs = [pair.partition(":") for pair in feature_text.split()]
    return (
        _numbers(list(dict.fromkeys(labels)), num_labels, "label"),
        _numbers([feature for feature, _, _ in pairs], num_features, "feature"),
        _weights([value for _, _, value in pairs]),
        feature_text,
    )


def _numbers(words: list[str], below: int, what: str) -> np.ndarray:
    numbers = [int(word) if word.isdigit() and len(word) <= 18 else below for word in words]
    if max(numbers, default=-1) >= below:
        wrong = words[int(np.argmax(np.array(numbers) >= below))]
        raise ValueError(
            f"{what} numbers must be integers from 0 to {below - 1}, but one is {wrong[:60]!r}."
        )
    return np.array(numbers, np.int32)


def _weights(words: list[str]) -> np.ndarray:
    with np.errstate(over="ignore"):
        weights = np.array([_value(word) for word in words]).astype(np.float32)
    is_finite = np.isfinite(weights)
    if not is_finite.all():
        wrong = words[int(np.argmin(is_finite))]
        raise ValueError(
            f"values must be numbers that are finite in float32, but one is {wrong[:60]!r}."
        )
    return weights


def _value(word: str) -> float:
    try:  # Python accepts underscores in numbers; the format does not.
        return float(word.replace("_", "?"))
    except ValueError:
        return float("nan")


def _joined(rows: Sequence[np.ndarray]) -> Ragged:
    values = np.concatenate([np.zeros(0, np.int32), *rows])
    return Ragged.from_lengths(values, [len(row) for row in rows])
