"""The function `load`, and its result."""

import dataclasses
import operator
import os
from typing import Any, SupportsIndex

import numpy as np
import tensorflow as tf

from tf_largeout.arguments import int64_or_none, real_number, whole_number
from tf_largeout.datasets import place_names, xmc
from tf_largeout.datasets.corpus import Corpus
from tf_largeout.datasets.pipeline import Pipeline
from tf_largeout.datasets.sources import Folders


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A dataset that is ready for `fit` and `evaluate`.

    The pipelines yield `(features, labels)`:

    * Features are int32 `[batch_size, max_features]`, row ids of an embedding table, padded
      with 0. If features have weights, they are a dict of `ids` and float32 `weights`, both of
      this shape.
    * Labels are int64 `[batch_size]`. If examples may have several labels, they are
      `[batch_size, max_labels]`, padded with -1, where `max_labels` is the largest number of
      labels of an example in the batch.

    Attributes:
        name: As passed to `load`.
        train: Shuffled differently in each epoch, in the same way in each run.
        test: In fixed order.
        validation: Part of the training split that is not in `train`; None if not requested.
        num_train: Number of examples in `train`.
        num_test: Number of examples in `test`.
        num_validation: Number of examples in `validation`.
        num_classes: Number of classes. Ids are in descending order of counts in the training
            split.
        num_train_classes: Number of classes in the training split, which have the lowest ids.
            The others occur in the test split only, so every model misses them.
        label_counts: int64 `[num_classes]`, how often each class labels an example of `train`.
        vocabulary_size: Number of rows of the feature table, including padding.
        max_features: Width of the features.
        corpus: The parsed data, with `corpus.example_texts[i]` and others.
    """

    name: str
    train: tf.data.Dataset
    test: tf.data.Dataset
    validation: tf.data.Dataset | None
    num_train: int
    num_test: int
    num_validation: int
    num_classes: int
    num_train_classes: int
    label_counts: np.ndarray
    vocabulary_size: int
    max_features: int
    corpus: Corpus = dataclasses.field(repr=False)

    def class_text(self, class_id: SupportsIndex) -> str:
        """Returns one readable line that describes a class.

        Raises:
            IndexError: If `class_id` is not in `[0, num_classes)`.
            TypeError: If `class_id` is not an integer.
        """
        return self.corpus.class_texts[checked_index("class_id", class_id, self.num_classes)]

    def test_text(self, index: SupportsIndex) -> str:
        """Returns one readable line that describes an example of `test`, by its position.

        Raises:
            IndexError: If `index` is not in `[0, num_test)`.
            TypeError: If `index` is not an integer.
        """
        position = checked_index("index", index, self.num_test)
        return self.corpus.example_texts[self.corpus.num_train + position]


def load(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    shuffle_seed: int | None = 0,
    validation_fraction: float = 0.0,
    max_train_labels: int | None = None,
) -> Dataset:
    """Loads a dataset that is ready for training, and downloads it if necessary.

    The first call downloads the source to `data_dir/downloads/manual` and stores the parsed
    dataset in `data_dir/downloads/parsed`. Later calls read only the parsed dataset.

    Args:
        name: `"place_names"`, or `"xmc/FOLDER"` for your own files in the format of the Extreme
            Classification Repository.
        data_dir: Local folder of the datasets, created if missing. If it cannot be written, a
            warning is logged and the parsed dataset is not stored. The default is as in tfds:
            the value of the environment variable `TFDS_DATA_DIR`, or else
            `~/tensorflow_datasets`.
        batch_size: Examples per batch. Defaults to None: the pipelines yield single examples.
        shuffle_seed: 64-bit integer that determines the order of `train`, which differs between
            epochs. None leaves `train` unshuffled. Defaults to 0.
        validation_fraction: Approximate fraction of the training split that becomes
            `validation`, chosen by hashes of the content. So the examples are the same in each
            run, and each place keeps a name in `train`. Defaults to 0.
        max_train_labels: Maximum number of labels per training example; further labels are
            dropped. Batches are as wide as the largest number of labels of an example, so a
            limit saves time. Defaults to None: no limit.

    Raises:
        ImportError: If a package of the extra `examples` is not installed.
        SourceFileError: If the source is damaged, or is missing and cannot be downloaded. The
            message says how to get it. This is a subclass of `ValueError`.
        ValueError: If `name` is unknown, `"xmc"` comes without the name of one folder,
            `data_dir` is not a local path, a number is out of range, or `validation_fraction`
            leaves `train` or `validation` empty.
    """
    base, _, folder = name.partition("/") if isinstance(name, str) else ("", "", "")
    if base != "xmc" and name != "place_names":
        raise ValueError(f'`name` must be "place_names" or "xmc/FOLDER". Received: {name!r}.')
    options = checked_options(batch_size, shuffle_seed, validation_fraction)
    max_train_labels = whole_number("max_train_labels", max_train_labels, or_none=True)
    folders = Folders.of_data_dir(data_dir)
    corpus = xmc.corpus(folders, folder) if base == "xmc" else place_names.corpus(folders)
    return examples_dataset(name, corpus, max_train_labels, **options)


def checked_options(
    batch_size: Any = None, shuffle_seed: Any = 0, validation_fraction: Any = 0.0
) -> dict[str, Any]:
    """Returns arguments of `load`, or raises a ValueError."""
    return {
        "batch_size": whole_number("batch_size", batch_size, or_none=True),
        "shuffle_seed": int64_or_none("shuffle_seed", shuffle_seed),
        "validation_fraction": real_number(
            "validation_fraction", validation_fraction, least=0, most=1, allow_most=False
        ),
    }


def examples_dataset(
    name: str,
    corpus: Corpus,
    max_train_labels: int | None = None,
    *,
    batch_size: int | None = None,
    shuffle_seed: int | None = 0,
    validation_fraction: float = 0.0,
) -> Dataset:
    """Creates the dataset of a corpus. The arguments are those of `load`."""
    single_label = bool((corpus.labels.lengths == 1).all())
    is_validation = _held_out(corpus, validation_fraction, single_label)
    train, validation = np.flatnonzero(~is_validation), np.flatnonzero(is_validation)
    check_division(len(train), len(validation), validation_fraction, "examples")
    test = np.arange(corpus.num_train, corpus.num_examples)
    pipeline = Pipeline(corpus, single_label)
    all_counts = corpus.label_counts(np.arange(corpus.num_train))
    return Dataset(
        name=name,
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


def _held_out(corpus: Corpus, fraction: float, single_label: bool) -> np.ndarray:
    """Returns bool `[num_train]`: which examples of the training split are for validation."""
    hashes = corpus.group_hashes[: corpus.num_train]
    result = hashes < np.uint64(int(fraction * 2**64))
    if single_label:
        labels = corpus.labels.values[: corpus.num_train]
        remaining = np.bincount(labels[~result], minlength=corpus.num_classes)
        # A class keeps at least one training example.
        result &= remaining[labels] > 0
    return result


def check_division(num_train: int, num_validation: int, fraction: float, what: str) -> None:
    """Raises a `ValueError` if `validation_fraction` leaves `train` or `validation` empty."""
    if fraction and not (num_train and num_validation):
        raise ValueError(
            "`validation_fraction` must leave data for training and for validation. It divides "
            f"{num_train + num_validation:,} training {what} into {num_train:,} for training "
            f"and {num_validation:,} for validation. Received: validation_fraction={fraction}."
        )


def checked_index(name: str, value: SupportsIndex, below: int) -> int:
    """Returns an argument as an int in `[0, below)`, or raises a TypeError or an IndexError."""
    try:
        index = operator.index(value)
    except TypeError:
        raise TypeError(
            f"`{name}` must be an integer. Received: {name}={value!r} (of type "
            f"{type(value).__name__})."
        ) from None
    if not 0 <= index < below:
        raise IndexError(f"Expected 0 <= {name} < {below}. Received: {name}={value!r}.")
    return index
