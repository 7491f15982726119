"""`load`: a dataset by its name."""

import importlib
import os
from typing import Any

from tf_largeout.arguments import is_real, seed_or_none, whole_number
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
    """Fetches and parses a dataset, once, and returns it ready for training.

    The first call fetches the source into `data_dir/downloads/manual` and keeps what it
    parses in `data_dir/downloads/parsed`; later ones need only the latter.

    Args:
        name: `"place_names"`, `"linux_callees"` (or `"linux_callees/constants"`,
            `"linux_callees/fields"` for the larger label vocabularies), `"xmc/FOLDER"`, or a
            text: `"brown"`, `"gcide"` or `"linux_tokens"`.
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
        vocabulary_size: classes of a text: its most frequent tokens and one class for all
            others. Default: 10,000 for `"brown"`, and the tokens with a training count of two
            or more for `"gcide"`, of three or more for `"linux_tokens"`.
        sequence_length: tokens of a window of a text. Default: 64.

    Returns:
        A `Dataset`; of a text a `TokenDataset`.

    Raises:
        ImportError: a package of the extra `examples` is not installed.
        SourceFileError: the source is missing and cannot be fetched, or is damaged; the
            message says how to get it. It is a `ValueError` too.
        ValueError: there is no dataset or variant of that name, `"xmc"` stands without its
            folder or with more than a folder's name, `data_dir` is no local path,
            `batch_size` or `max_train_labels` is neither a positive integer nor None,
            `shuffle_seed` no integer of 64 bits nor None, `validation_fraction` is not in
            [0, 1), or leaves `train` or `validation` without examples, or
            `vocabulary_size` is below 2, `sequence_length` below 1, or either is given for
            what is no text.
    """
    if not isinstance(name, str) or name.partition("/")[0] not in _NAMES:
        raise ValueError(f"`name` must be one of {', '.join(_NAMES)}. Received: name={name!r}.")
    base, _, config = name.partition("/")
    options: dict[str, Any] = {
        "batch_size": whole_number("batch_size", batch_size, or_none=True),
        "shuffle_seed": seed_or_none("shuffle_seed", shuffle_seed),
        "validation_fraction": _fraction(validation_fraction),
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


def _fraction(value: Any) -> float:
    if is_real(value) and 0 <= value < 1:
        return float(value)
    raise ValueError(
        "`validation_fraction` must be a number of at least 0 and below 1. Received: "
        f"validation_fraction={value!r} (of type {type(value).__name__})."
    )


def _check_no_variant(name: str) -> None:
    base, _, variant = name.partition("/")
    if variant:
        raise ValueError(
            f"{base} has no variants; `vocabulary_size` says how many classes it has. "
            f"Received: name={name!r}."
        )


def _check_no_text_options(name: str, vocabulary_size: Any, sequence_length: Any) -> None:
    if vocabulary_size is not None or sequence_length is not None:
        raise ValueError(
            "`vocabulary_size` and `sequence_length` are for texts "
            f"({', '.join(_TEXTS)}). Received: name={name!r}, "
            f"vocabulary_size={vocabulary_size}, sequence_length={sequence_length}."
        )
