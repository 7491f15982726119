"""Reads the text format of the Extreme Classification Repository.

The first line is `num_examples num_features num_labels`; each further one is an example,
`label,label feature:value feature:value ...`, with numbers from 0. A line that begins with a
space is an example without labels.
"""

import dataclasses

import numpy as np

from tf_largeout.datasets.errors import SourceFileError
from tf_largeout.datasets.hashing import md5_uint64
from tf_largeout.datasets.progress import tqdm
from tf_largeout.datasets.ragged import Ragged


@dataclasses.dataclass(frozen=True)
class XmcFile:
    """What a file says; numbers are those of the file.

    Attributes:
        num_features, num_labels: as in the header.
        features: int32 feature numbers, a row an example.
        weights: float32, the value of each of `features.values`.
        labels: int32 label numbers, a row an example.
        hashes: uint64, of each example's features.
    """

    num_features: int
    num_labels: int
    features: Ragged
    weights: np.ndarray
    labels: Ragged
    hashes: np.ndarray


def read(path):
    """The `XmcFile` at `path`.

    Raises:
        SourceFileError: the file is damaged or cut off; the message names the line.
    """
    with open(path, encoding="ascii", errors="surrogateescape") as file:
        num_examples, num_features, num_labels = _header(file.readline(), path)
        labels, features, weights, texts = [], [], [], []
        bar = tqdm(file, total=num_examples, desc=f"Reading {path.name}", unit=" examples")
        for number, line in enumerate(bar, start=2):
            label_text, _, feature_text = line.rstrip("\n").partition(" ")
            try:
                labels.append(_numbers(label_text.split(","), num_labels, "label"))
                pairs = [pair.split(":") for pair in feature_text.split()]
                features.append(_numbers([i for i, _ in pairs], num_features, "feature"))
                weights.append(np.array([value for _, value in pairs], np.float32))
            except ValueError as error:
                raise SourceFileError(
                    f"Expected line {number} of {path} to be `label,label feature:value "
                    f"feature:value ...`. It begins {line[:60]!r}: {error}"
                ) from error
            texts.append(feature_text)
    if len(labels) != num_examples:
        raise SourceFileError(
            f"Expected {num_examples:,} examples in {path}, as its first line says; it has "
            f"{len(labels):,}. Get the file again."
        )
    return XmcFile(
        num_features=num_features,
        num_labels=num_labels,
        features=_joined(features),
        weights=np.concatenate([np.zeros(0, np.float32), *weights]),
        labels=_joined(labels),
        hashes=md5_uint64(texts),
    )


def _header(line, path):
    words = line.split()
    if len(words) != 3 or not all(word.isdigit() for word in words):
        raise SourceFileError(
            f"Expected the first line of {path} to be `num_examples num_features num_labels`. "
            f"It begins {line[:60]!r}."
        )
    return map(int, words)


def _numbers(words, below, what):
    numbers = np.array([word for word in words if word], np.int64)
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < below:
        raise ValueError(f"{what} numbers must be 0 ... {below - 1}.")
    return numbers.astype(np.int32)


def _joined(rows):
    values = np.concatenate([np.zeros(0, np.int32), *rows])
    return Ragged.from_lengths(values, [len(row) for row in rows])
