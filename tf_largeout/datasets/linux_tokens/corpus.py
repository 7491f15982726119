"""Downloads, parses and caches the corpus of linux_tokens."""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from tf_largeout.datasets.cache import cached
from tf_largeout.datasets.folders import Folders
from tf_largeout.datasets.linux_callees import source
from tf_largeout.datasets.linux_callees.source_tree import is_test, source_files
from tf_largeout.datasets.linux_tokens import c_tokens
from tf_largeout.datasets.parser_workers import ParserWorkers
from tf_largeout.datasets.token_corpus import TokenCorpus

MIN_COUNT = 3  # In the training split.
_SUFFIXES = (".c", ".h")
_PARSER_VERSION = 1  # Increase it when the parsed form changes.


def corpus(folders: Folders, num_classes: int | None = None) -> TokenCorpus:
    """Returns the corpus with a vocabulary of the most frequent tokens.

    Args:
        folders: Folders of the dataset. If the package is missing, it is downloaded to
            `folders.manual`.
        num_classes: Size of the vocabulary, including the unknown token. Defaults to all tokens
            that occur at least `MIN_COUNT` times in the training split.
    """
    package = source.PACKAGE
    path = folders.parsed / f"linux_tokens-v{_PARSER_VERSION}-{package.sha256[:12]}.npz"
    full = cached(path, TokenCorpus, lambda: parse_package(package.ensure(folders.manual)))
    return full.limited(num_classes) if num_classes else full.with_min_count(MIN_COUNT)


def parse_package(
    path: str | os.PathLike[str], num_workers: int | None = None, files_per_batch: int = 256
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
    return from_batches(workers.parse(source_files(path, _SUFFIXES), files_per_batch))


def from_batches(batches: Iterable[tuple[list[str], Any]]) -> TokenCorpus:
    """Merges the results of `ParserWorkers.parse`: paths and results of `c_tokens`."""
    numbers: dict[str, int] = {}
    tokens: list[np.ndarray] = []
    paths: list[str] = []
    for batch_paths, batch in batches:
        global_ids = [numbers.setdefault(word, len(numbers)) for word in batch["words"]]
        ids = np.array(global_ids, np.int32)[np.frombuffer(batch["ids"], np.int32)]
        tokens += np.split(ids, np.cumsum(batch["lengths"])[:-1])
        paths += batch_paths
    return TokenCorpus.from_documents(
        tokens, numbers, paths, paths, np.array([is_test(path) for path in paths], bool)
    )
