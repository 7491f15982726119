"""`Corpus`, the parsed form of the datasets with examples and labels, and its cache on disk."""

import dataclasses
import hashlib
import logging
import pathlib
import zipfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from tf_largeout.atomic_file import atomic_file
from tf_largeout.datasets.ragged import Ragged, TextTable

_Kind = TypeVar("_Kind", bound="Storable")
_log = logging.getLogger(__name__)


def frequency_order(train_counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranks classes by descending count: `order[new_id]` is an old id, `rank[old_id]` a new."""
    order = np.argsort(-np.asarray(train_counts), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return order, rank


def md5_uint64(texts: Iterable[str]) -> np.ndarray:
    """Returns uint64 `[len(texts)]`, of the md5 of each text, to assign examples to splits."""
    digests = b"".join(
        hashlib.md5(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).digest()[:8]
        for text in texts
    )
    return np.frombuffer(digests, ">u8").astype(np.uint64)


@dataclasses.dataclass(frozen=True)
class Storable:
    """A dataclass that `cached` stores: rows, texts, arrays and integers, some of them None."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns arrays by name, for `from_arrays`."""
        arrays: dict[str, np.ndarray] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Ragged):
                arrays[f"{field.name}.values"] = value.values
                arrays[f"{field.name}.offsets"] = value.offsets
            elif value is not None:
                arrays[field.name] = np.asarray(value)
        return arrays

    @classmethod
    def from_arrays(cls: type[_Kind], arrays: Mapping[str, np.ndarray]) -> _Kind:
        """Creates an object from the result of `to_arrays`."""
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            name = field.name
            if field.type in (Ragged, TextTable):
                rows = arrays[f"{name}.values"], arrays[f"{name}.offsets"]
                values[name] = TextTable(*rows) if field.type is TextTable else Ragged(*rows)
            elif field.type is int:
                values[name] = int(arrays[name])
            else:
                values[name] = arrays.get(name) if field.default is None else arrays[name]
        return cls(**values)


@dataclasses.dataclass(frozen=True)
class Corpus(Storable):
    """All examples of a dataset as flat arrays: the training split first, then the test split.

    Class ids are in descending order of training counts, as a log-uniform sampler expects.

    Attributes:
        features: One row of int32 ids per example. Ids are `1 ... vocabulary_size - 1`; 0 is
            reserved for padding.
        labels: One row of class ids per example.
        feature_weights: float32, one per id in `features`, or None if all weights are 1.
        example_texts: One readable line per example.
        class_texts: One readable line per class.
        group_hashes: uint64 `[num_examples]`, a hash of the group that must stay in one split
            (the name itself, or the source file).
        num_train: Number of examples in the training split.
        vocabulary_size: Number of rows of the feature table, including padding.
    """

    features: Ragged
    labels: Ragged
    example_texts: TextTable
    class_texts: TextTable
    group_hashes: np.ndarray
    num_train: int
    vocabulary_size: int
    feature_weights: np.ndarray | None = None

    @property
    def num_examples(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        return len(self.class_texts)

    @property
    def ragged_weights(self) -> Ragged | None:
        """`feature_weights`, split into rows as `features` is; None if all weights are 1."""
        if self.feature_weights is None:
            return None
        return Ragged(self.feature_weights, self.features.offsets)

    def label_counts(self, examples: np.ndarray) -> np.ndarray:
        """Returns int64 `[num_classes]`, how often each class labels the given examples."""
        return np.bincount(self.labels.take(examples).values, minlength=self.num_classes)


def cached(path: pathlib.Path, kind: type[_Kind], parse: Callable[[], _Kind]) -> _Kind:
    """Returns the object stored at `path`, or calls `parse()` and stores its result there.

    If the file is damaged, the source is parsed again. If it cannot be written, a warning is
    logged, and the result is not stored.
    """
    stored = _stored(path)
    if stored is not None:
        return kind.from_arrays(stored)
    parsed = parse()
    arrays: dict[str, Any] = parsed.to_arrays()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            np.savez(file, **arrays)
    except OSError as error:
        _log.warning(
            f"The parsed dataset was not stored because {path} cannot be written: {error}. The "
            "next run will parse it again. Set `data_dir`, or the environment variable "
            "TFDS_DATA_DIR, to a writable folder with enough space."
        )
    return parsed


def _stored(path: pathlib.Path) -> dict[str, np.ndarray] | None:
    """Reads the arrays at `path`. Returns None if the file is missing or damaged."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            # Otherwise the header of a damaged array could ask for any amount of memory.
            if archive.testzip() is not None:
                raise zipfile.BadZipFile("wrong checksum")
            file.seek(0)
            with np.load(file) as arrays:
                return dict(arrays)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except MemoryError:
        raise
    except Exception as error:  # A damaged archive raises many different errors.
        _log.warning("The cache %s is damaged (%r). The source is parsed again.", path, error)
        return None
