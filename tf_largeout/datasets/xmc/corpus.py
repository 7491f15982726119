"""Parses and caches a dataset of the Extreme Classification Repository."""

import hashlib

import numpy as np

from tf_largeout.datasets.cache import cached
from tf_largeout.datasets.class_order import frequency_order
from tf_largeout.datasets.corpus import Corpus
from tf_largeout.datasets.errors import SourceFileError
from tf_largeout.datasets.ragged import Ragged
from tf_largeout.datasets.text_table import TextTable
from tf_largeout.datasets.xmc import text_format

BY_HAND = (
    "Download a dataset in the format `N D L`, `l1,l2 f:v ...` from the Extreme "
    "Classification Repository. Copy its training and test files to `xmc/NAME/train.txt` and "
    "`xmc/NAME/test.txt` in the folder for manual downloads."
)
_PARSER_VERSION = 2  # Increase it when the parsed form changes.


def corpus(folders, name=None):
    """Returns the `Corpus`.

    Args:
        folders: `Folders` of the dataset. `folders.manual` contains `xmc/NAME/train.txt` and
            `xmc/NAME/test.txt`.
        name: Name of the dataset's folder in `xmc`.
    """
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


def _stat(path):
    try:
        if path.is_file():
            return path.stat()
    except OSError as error:
        raise SourceFileError(f"{path} cannot be read: {error}. {BY_HAND}") from error
    raise SourceFileError(f"{path} is missing. {BY_HAND}")


def parse(train_path, test_path):
    """Returns the `Corpus` of a training file and a test file.

    The number of classes is that in the header, as in the papers, even if some do not occur.
    """
    train, test = text_format.read(train_path), text_format.read(test_path)
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
        example_texts=TextTable.from_strings(_texts("train", train) + _texts("test", test)),
        class_texts=TextTable.from_strings(f"label {number}" for number in order),
        group_hashes=np.concatenate([train.hashes, test.hashes]),
        num_train=len(train.labels),
        vocabulary_size=train.num_features + 1,
    )


def _texts(split, file):
    return [f"{split} example {number}" for number in range(len(file.labels))]
