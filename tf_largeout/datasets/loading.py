"""The function `load`."""

import importlib
import os
from typing import Any

from tf_largeout.arguments import real_number, seed_or_none, whole_number
from tf_largeout.datasets.dataset import Dataset
from tf_largeout.datasets.examples_dataset import examples_dataset
from tf_largeout.datasets.folders import Folders
from tf_largeout.datasets.token_dataset import token_dataset

_TEXTS = ("brown", "gcide", "linux_tokens")
_NAMES = ("place_names", "linux_callees", "xmc", *_TEXTS)
_SEQUENCE_LENGTH = 64


def load(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    shuffle_seed: int | None = 0,
    validation_fraction: float = 0.0,
    max_train_labels: int | None = None,
    vocabulary_size: int | None = None,
    sequence_length: int | None = None,
) -> Dataset:
    """Loads a dataset that is ready for training, and downloads it if necessary.

    The first call downloads the source to `data_dir/downloads/manual` and stores the parsed
    dataset in `data_dir/downloads/parsed`. Later calls read only the parsed dataset.

    Args:
        name: `"place_names"`, `"linux_callees"` (or `"linux_callees/constants"`,
            `"linux_callees/fields"` for the larger label vocabularies), `"xmc/FOLDER"`, or a
            text dataset: `"brown"`, `"gcide"` or `"linux_tokens"`.
        data_dir: Local folder of the datasets, created if missing. If it cannot be written, a
            warning is logged and the parsed dataset is not stored. The default is as in tfds:
            the value of the environment variable `TFDS_DATA_DIR`, or else
            `~/tensorflow_datasets`.
        batch_size: Examples per batch. Defaults to None: the pipelines yield single examples.
        shuffle_seed: 64-bit integer that determines the order of `train`, which differs between
            epochs. None leaves `train` unshuffled. Defaults to 0.
        validation_fraction: Approximate fraction of the training split that becomes
            `validation`, chosen by hashes of the content. So the examples are the same in each
            run; a source file is never divided if the split is by file; and each place keeps a
            name in `train`. Defaults to 0.
        max_train_labels: Maximum number of labels per training example; further labels are
            dropped. Batches are as wide as the largest number of labels of an example, so a
            limit saves time. Defaults to None: no limit.
        vocabulary_size: Number of classes of a text dataset: the most frequent tokens, and one
            class for all others. Defaults to 10,000 for `"brown"`, to the tokens with a
            training count of at least 2 for `"gcide"`, and of at least 3 for `"linux_tokens"`.
        sequence_length: Tokens per window of a text dataset. Defaults to 64.

    Returns:
        A `Dataset`, or a `TokenDataset` for a text dataset.

    Raises:
        ImportError: If a package of the extra `examples` is not installed.
        SourceFileError: If the source is damaged, or is missing and cannot be downloaded. The
            message says how to get it. This is a subclass of `ValueError`.
        ValueError: If `name` or its variant is unknown, `"xmc"` comes without the name of one
            folder, `data_dir` is not a local path, or a number is out of range. It is also
            raised if `vocabulary_size` or `sequence_length` is given for a dataset that is not
            a text, or if `validation_fraction` leaves `train` or `validation` empty.
    """
    if not isinstance(name, str) or name.partition("/")[0] not in _NAMES:
        raise ValueError(f"`name` must be one of {', '.join(_NAMES)}. Received: name={name!r}.")
    base, _, config = name.partition("/")
    options: dict[str, Any] = {
        "batch_size": whole_number("batch_size", batch_size, or_none=True),
        "shuffle_seed": seed_or_none("shuffle_seed", shuffle_seed),
        "validation_fraction": real_number(
            "validation_fraction", validation_fraction, least=0, most=1, allow_most=False
        ),
    }
    max_train_labels = whole_number("max_train_labels", max_train_labels, or_none=True)
    vocabulary_size = whole_number("vocabulary_size", vocabulary_size, least=2, or_none=True)
    sequence_length = whole_number("sequence_length", sequence_length, or_none=True)
    folders = Folders.of_data_dir(data_dir)
    corpus_of = importlib.import_module(f"tf_largeout.datasets.{base}.corpus").corpus
    if base in _TEXTS:
        _check_no_variant(name)
        corpus = corpus_of(folders, vocabulary_size)
        return token_dataset(name, corpus, sequence_length or _SEQUENCE_LENGTH, **options)
    _check_no_text_options(name, vocabulary_size, sequence_length)
    corpus = corpus_of(folders, *([config] if config else []))
    name = f"{base}/{config}" if config else base
    return examples_dataset(name, corpus, max_train_labels, **options)


def _check_no_variant(name: str) -> None:
    base, _, variant = name.partition("/")
    if variant:
        raise ValueError(
            f"{base} has no variants. Set its number of classes with `vocabulary_size`. "
            f"Received: name={name!r}."
        )


def _check_no_text_options(name: str, vocabulary_size: Any, sequence_length: Any) -> None:
    if vocabulary_size is not None or sequence_length is not None:
        raise ValueError(
            "`vocabulary_size` and `sequence_length` are only for text datasets "
            f"({', '.join(_TEXTS)}). Received: name={name!r}, "
            f"vocabulary_size={vocabulary_size}, sequence_length={sequence_length}."
        )
