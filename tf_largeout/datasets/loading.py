"""`load`: a dataset by its name."""

import importlib
import os
from typing import Any

import numpy as np

from tf_largeout.arguments import is_real, is_whole, whole_number
from tf_largeout.datasets.corpus import Corpus
from tf_largeout.datasets.dataset import Dataset
from tf_largeout.datasets.folders import Folders
from tf_largeout.datasets.pipeline import Pipeline

_NAMES = ("place_names", "linux_callees", "xmc")


def load(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    shuffle_seed: int | None = 0,
    validation_fraction: float = 0.0,
    max_train_labels: int | None = None,
) -> Dataset:
    """Fetches and parses a dataset, once, and returns it ready for training.

    The first call fetches the source into `data_dir/downloads/manual` and keeps what it
    parses in `data_dir/downloads/parsed`; later ones need only the latter.

    Args:
        name: `"place_names"`, `"linux_callees"` (or `"linux_callees/constants"`,
            `"linux_callees/fields"` for the larger label vocabularies), or `"xmc/FOLDER"`.
        data_dir: local folder where datasets live, which is made if it is not there. Where it
            cannot be written, what is parsed is not kept, and a warning says so. Default, as
            in tfds: the environment variable `TFDS_DATA_DIR`, or else
            `~/tensorflow_datasets`.
        batch_size: int; None gives single examples.
        shuffle_seed: int of 64 bits for the order of `train`, which is another one in each
            epoch; None leaves it unshuffled.
        validation_fraction: about this part of the training split becomes `validation`. What
            belongs there is decided by hashes of the content: the same examples in each run,
            whole source files where the split is by file, and no name that is the only one of
            its place.
        max_train_labels: of training examples with more labels the first are used. Batches
            are as wide as their longest row, so that a limit saves time. None for all.

    Returns:
        A `Dataset`.

    Raises:
        ImportError: a package of the extra `examples` is not installed.
        SourceFileError: the source is missing and cannot be fetched, or is damaged; the
            message says how to get it. It is a `ValueError` too.
        ValueError: there is no dataset or variant of that name, `"xmc"` stands without its
            folder or with more than a folder's name, `data_dir` is no local path,
            `batch_size` or `max_train_labels` is neither a positive integer nor None,
            `shuffle_seed` no integer of 64 bits nor None, or `validation_fraction` is not in
            [0, 1), or leaves `train` or `validation` without examples.
    """
    if not isinstance(name, str) or name.partition("/")[0] not in _NAMES:
        raise ValueError(f"`name` must be one of {', '.join(_NAMES)}. Received: name={name!r}.")
    name, _, config = name.partition("/")
    batch_size = whole_number("batch_size", batch_size, or_none=True)
    max_train_labels = whole_number("max_train_labels", max_train_labels, or_none=True)
    shuffle_seed = _seed(shuffle_seed)
    validation_fraction = _fraction(validation_fraction)
    module = importlib.import_module(f"tf_largeout.datasets.{name}.corpus")
    corpus = module.corpus(Folders.of_data_dir(data_dir), *([config] if config else []))
    single_label = bool((corpus.labels.lengths == 1).all())
    train, validation = _divided(corpus, validation_fraction, single_label)
    test = np.arange(corpus.num_train, corpus.num_examples)
    pipeline = Pipeline(corpus, single_label)
    all_counts = corpus.label_counts(np.arange(corpus.num_train))
    return Dataset(
        name=f"{name}/{config}" if config else name,
        train=pipeline.dataset(train, batch_size, shuffle_seed, max_train_labels),
        test=pipeline.dataset(test, batch_size),
        validation=pipeline.dataset(validation, batch_size) if len(validation) else None,
        num_train=len(train),
        num_test=len(test),
        num_validation=len(validation),
        num_classes=corpus.num_classes,
        num_train_classes=int(np.count_nonzero(all_counts)),
        label_counts=corpus.label_counts(train),
        vocabulary_size=corpus.vocabulary_size,
        max_features=pipeline.max_features,
        corpus=corpus,
    )


def _seed(value: Any) -> int | None:
    if value is None or (is_whole(value) and -(2**63) <= value < 2**63):
        return value if value is None else int(value)
    raise ValueError(
        "`shuffle_seed` must be an integer of 64 bits or None. "
        f"Received: shuffle_seed={value!r} (of type {type(value).__name__})."
    )


def _fraction(value: Any) -> float:
    if is_real(value) and 0 <= value < 1:
        return float(value)
    raise ValueError(
        "`validation_fraction` must be a number of at least 0 and below 1. Received: "
        f"validation_fraction={value!r} (of type {type(value).__name__})."
    )


def _divided(
    corpus: Corpus, fraction: float, single_label: bool
) -> tuple[np.ndarray, np.ndarray]:
    """int64 numbers of the examples of `train` and of `validation`."""
    is_validation = _held_out(corpus, fraction, single_label)
    train, validation = np.flatnonzero(~is_validation), np.flatnonzero(is_validation)
    if fraction and not (len(train) and len(validation)):
        raise ValueError(
            f"Of {corpus.num_train:,} training examples `validation_fraction` leaves "
            f"{len(train):,} to train on and {len(validation):,} to validate on; neither may "
            f"be 0. Received: validation_fraction={fraction}."
        )
    return train, validation


def _held_out(corpus: Corpus, fraction: float, single_label: bool) -> np.ndarray:
    """Bool `[num_train]`: which training examples become validation examples."""
    hashes = corpus.group_hashes[: corpus.num_train]
    result = hashes < np.uint64(int(fraction * 2**64))
    if single_label:
        labels = corpus.labels.values[: corpus.num_train]
        left = np.bincount(labels[~result], minlength=corpus.num_classes)
        result &= left[labels] > 0
    return result
