"""C functions and C tokens of the Linux kernel, from its Debian package. See README.md."""

import dataclasses
import hashlib
import os
import pathlib
import tarfile
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from lab.corpora import c_functions, c_tokens
from lab.corpora.c_functions import CALLED, CONSTANT, FIELD, Batch
from lab.corpora.packages import debian_package, installed_files, tar_stream
from lab.corpora.parser_workers import ParserWorkers
from lab.corpora.text import TokenCorpus
from tf_largeout.datasets.corpus import Corpus, Storable, cached, frequency_order, md5_uint64
from tf_largeout.datasets.ragged import Ragged, TextTable
from tf_largeout.datasets.sources import Folders, SourceFileError

PACKAGE = debian_package(
    "linux-source-6.1",
    "6.1.176-1",
    "9305d1a151b8e83dcb88aa11361e7b9513f0c252bdf7f5647e4542762d99c094",
)
MIN_COUNT = 3  # Of a token in the training split.
MAX_FEATURES = 40  # One function in ten thousand has more.
VOCABULARIES = {
    "functions": CALLED,
    "constants": CALLED | CONSTANT,
    "fields": CALLED | CONSTANT | FIELD,
}
_COLUMNS = ("features", "feature_lengths", "labels", "label_lengths", "kinds", "file_of")


def callees(folders: Folders, vocabulary: str = "functions") -> Corpus:
    """Returns the functions that C functions call, with one of the three label vocabularies.

    Args:
        folders: `Folders` of the dataset. If the package is missing, it is downloaded to
            `folders.manual`.
        vocabulary: `"functions"`; `"constants"`, which adds identifiers in capitals; or
            `"fields"`, which also adds struct fields. Defaults to `"functions"`.
    """
    if vocabulary not in VOCABULARIES:
        raise ValueError(
            f"The label vocabulary of linux_callees must be one of {', '.join(VOCABULARIES)}. "
            f"Received: {vocabulary!r}."
        )

    def parse() -> FunctionTable:
        files = source_files(PACKAGE.ensure(folders.manual))
        return FunctionTable.from_batches(ParserWorkers(c_functions.__file__).parse(files))

    path = folders.parsed / f"linux_callees-v2-{PACKAGE.sha256[:12]}.npz"
    return select(cached(path, FunctionTable, parse), vocabulary)


def tokens(folders: Folders, num_classes: int | None = None) -> TokenCorpus:
    """Returns the tokens of the C files, with a vocabulary of the most frequent tokens.

    Args:
        folders: Folders of the dataset. If the package is missing, it is downloaded to
            `folders.manual`.
        num_classes: Size of the vocabulary, including the unknown token. Defaults to all tokens
            that occur at least `MIN_COUNT` times in the training split.
    """
    path = folders.parsed / f"linux_tokens-v2-{PACKAGE.sha256[:12]}.npz"
    full = cached(path, TokenCorpus, lambda: parse_tokens(PACKAGE.ensure(folders.manual)))
    return full.limited(num_classes) if num_classes else full.with_min_count(MIN_COUNT)


@dataclasses.dataclass(frozen=True)
class FunctionTable(Storable):
    """The parsed kernel source; every vocabulary of labels is computed from it.

    Attributes:
        features: Ids of each function's features.
        labels: Ids of the identifiers in each function's body.
        kinds: uint8, the kinds of each label in `labels.values`, a sum of flags such as
            `c_functions.CALLED`.
        words: The texts of features and identifiers, in the order of their ids.
        texts: `path: name` of each function.
        files: Paths of the files.
        file_of: int32, index of each function's file.
    """

    features: Ragged
    labels: Ragged
    kinds: np.ndarray
    words: TextTable
    texts: TextTable
    files: TextTable
    file_of: np.ndarray

    def is_test(self):
        """Returns for each function whether it is in the test split: `md5(path) % 10 == 0`."""
        return is_test(self.files)[self.file_of]

    def group_hashes(self):
        """Returns uint64, a hash of the path of each function's file."""
        return md5_uint64(self.files)[self.file_of]

    @classmethod
    def from_batches(cls, batches):
        """Merges the results of `ParserWorkers.parse`: paths, and the fields of a `Batch`."""
        ids, files, texts = {}, [], []
        columns = {name: [] for name in _COLUMNS}
        for paths, fields in batches:
            batch = Batch(**fields)
            global_ids = [ids.setdefault(word, len(ids)) for word in batch.words]
            global_ids = np.array(global_ids, np.int32)
            for name in ("features", "labels"):
                columns[name].append(global_ids[np.array(getattr(batch, name), np.int64)])
            for name in ("kinds", "feature_lengths", "label_lengths"):
                columns[name].append(np.array(getattr(batch, name), np.int32))
            columns["file_of"].append(np.array(batch.files, np.int32) + len(files))
            for file, name in zip(batch.files, batch.names, strict=True):
                texts.append(f"{paths[file]}: {batch.words[name]}")
            files += paths
        joined = {name: np.concatenate(parts) for name, parts in columns.items()}
        return cls(
            features=Ragged.from_lengths(joined["features"], joined["feature_lengths"]),
            labels=Ragged.from_lengths(joined["labels"], joined["label_lengths"]),
            kinds=joined["kinds"].astype(np.uint8),
            words=TextTable.from_strings(list(ids)),
            texts=TextTable.from_strings(texts),
            files=TextTable.from_strings(files),
            file_of=joined["file_of"],
        )


def select(table, vocabulary):
    """Returns the `Corpus` whose classes are the identifiers of one vocabulary.

    Feature ids are in descending order of training counts. Features that do not occur in the
    training split are dropped, and a function keeps at most its first `MAX_FEATURES` features.

    Args:
        table: `FunctionTable`.
        vocabulary: A key of `VOCABULARIES`.
    """
    is_test = table.is_test()
    rows = np.argsort(is_test, kind="stable")  # Training split first.
    num_train = int((~is_test).sum())
    kept = (table.kinds & VOCABULARIES[vocabulary]) != 0
    labels = table.labels.filtered(kept).take(rows)
    labels, classes, _ = _by_frequency(labels, num_train, len(table.words))
    features = table.features.take(rows)
    features, _, num_seen = _by_frequency(features, num_train, len(table.words))
    features = features.filtered(features.values < num_seen)
    features = features.filtered(features.places < MAX_FEATURES)
    return Corpus(
        features=Ragged(features.values + np.int32(1), features.offsets),  # 0 is padding.
        labels=labels,
        example_texts=table.texts.take(rows),
        class_texts=table.words.take(classes),
        group_hashes=table.group_hashes()[rows],
        num_train=num_train,
        vocabulary_size=1 + num_seen,
    )


def _by_frequency(ragged, num_train, num_words):
    """Renumbers words in descending order of their counts in the first `num_train` rows.

    Returns:
        `(rows, old, num_seen)`: the rows with new ids; int64, the old id of each new id; and
        the number of words that occur in the first `num_train` rows.
    """
    present = np.flatnonzero(np.bincount(ragged.values, minlength=num_words))
    train_values = ragged.values[: ragged.offsets[num_train]]
    counts = np.bincount(train_values, minlength=num_words)[present]
    order, _ = frequency_order(counts)
    old = present[order]
    new = np.full(num_words, -1, np.int32)
    new[old] = np.arange(len(old))
    return Ragged(new[ragged.values], ragged.offsets), old, int(np.count_nonzero(counts))


def parse_tokens(
    path: pathlib.Path, num_workers: int | None = None, files_per_batch: int = 256
) -> TokenCorpus:
    """Parses the package. The vocabulary of the result is every token of the training split.

    The split is by file, as for linux_callees.

    Args:
        path: Path of the package.
        num_workers: See `ParserWorkers`.
        files_per_batch: See `ParserWorkers.parse`.

    Raises:
        SourceFileError: If the file is damaged, or is a different package.
    """
    workers = ParserWorkers(c_tokens.__file__, num_workers)
    return tokens_of_batches(workers.parse(source_files(path, (".c", ".h")), files_per_batch))


def tokens_of_batches(batches: Iterable[tuple[list[str], Any]]) -> TokenCorpus:
    """Merges the results of `ParserWorkers.parse`: paths and results of `c_tokens`."""
    numbers: dict[str, int] = {}
    tokens: list[np.ndarray] = []
    paths: list[str] = []
    for batch_paths, batch in batches:
        global_ids = [numbers.setdefault(word, len(numbers)) for word in batch["words"]]
        ids = np.array(global_ids, np.int32)[np.frombuffer(batch["ids"], np.int32)]
        tokens += np.split(ids, np.cumsum(batch["lengths"])[:-1])
        paths += batch_paths
    return TokenCorpus.from_documents(tokens, numbers, paths, paths, is_test(paths))


def source_files(
    path: pathlib.Path, suffixes: tuple[str, ...] = (".c",)
) -> Iterator[tuple[str, bytes]]:
    """Yields the files of the source tree in a `linux-source-*.deb` that have given suffixes.

    Symbolic links are skipped, because their targets are in the tree too.

    Args:
        path: Path of the package.
        suffixes: Suffixes of the file names.

    Yields:
        `(path, content)`: the path relative to the root of the source tree, and bytes.

    Raises:
        SourceFileError: If the file is damaged or truncated, or is a different package.
    """
    num_files = 0
    with installed_files(path, "Parsing C files", "the kernel source") as outer:
        for member in outer:
            name = os.path.basename(member.name)
            is_tree = name.startswith("linux-source-") and name.endswith(".tar.xz")
            if is_tree and member.isfile():
                with tar_stream(outer.extractfile(member)) as tree:
                    for file in _members(tree, suffixes):
                        num_files += 1
                        yield file
    if not num_files:
        raise SourceFileError(
            f"Expected a linux-source-*.tar.xz with {', '.join(suffixes)} files in {path}."
        )


def _members(tree: tarfile.TarFile, suffixes: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    for member in tree:
        content = tree.extractfile(member) if member.isfile() else None
        if content and member.name.endswith(suffixes):
            _, _, below_top = member.name.removeprefix("./").partition("/")
            yield below_top, content.read()


def is_test(paths: Iterable[str]) -> np.ndarray:
    """Returns whether each file is in the test split: `md5(path) % 10 == 0`."""
    texts = (path.encode("utf-8", "surrogateescape") for path in paths)
    digests = (hashlib.md5(text, usedforsecurity=False).hexdigest() for text in texts)
    return np.array([int(digest, 16) % 10 == 0 for digest in digests], bool)
