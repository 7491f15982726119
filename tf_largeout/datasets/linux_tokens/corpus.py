"""The corpus of linux_tokens: fetched, parsed, cached."""

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

LEAST_COUNT = 3  # In the training split.
_SUFFIXES = (".c", ".h")
_PARSER_VERSION = 1  # To be raised with every change of what is parsed.


def corpus(folders: Folders, num_classes: int | None = None) -> TokenCorpus:
    """The corpus of the most frequent tokens.

    Args:
        folders: the package is fetched into the manual one if it is not there.
        num_classes: tokens, the unknown one included. Default: all that the training split
            has `LEAST_COUNT` times or more.
    """
    package = source.PACKAGE
    path = folders.parsed / f"linux_tokens-v{_PARSER_VERSION}-{package.sha256[:12]}.npz"
    full = cached(path, TokenCorpus, lambda: parse_package(package.ensure(folders.manual)))
    return full.limited(num_classes) if num_classes else full.with_counts_of(LEAST_COUNT)


def parse_package(
    path: str | os.PathLike[str], num_workers: int | None = None, files_a_batch: int = 256
) -> TokenCorpus:
    """The `TokenCorpus` of the package, with every token of the training split.

    The split is by file and that of linux_callees.

    Args:
        path: of the package.
        num_workers: as in `ParserWorkers`.
        files_a_batch: as in `ParserWorkers.parse`.

    Raises:
        SourceFileError: the file is no such package, or is damaged.
    """
    workers = ParserWorkers(c_tokens.__file__, num_workers)
    return from_batches(workers.parse(source_files(path, _SUFFIXES), files_a_batch))


def from_batches(batches: Iterable[tuple[list[str], Any]]) -> TokenCorpus:
    """Joins what `ParserWorkers.parse` yields: paths and what `c_tokens` finds in them."""
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
