"""Downloads, parses and caches the corpus of gcide."""

from tf_largeout.datasets.cache import cached
from tf_largeout.datasets.folders import Folders
from tf_largeout.datasets.gcide import source
from tf_largeout.datasets.gcide.parser import parse_package
from tf_largeout.datasets.token_corpus import TokenCorpus

MIN_COUNT = 2  # In the training split. Half of the tokens occur only once.
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
    path = folders.parsed / f"gcide-v{_PARSER_VERSION}-{package.sha256[:12]}.npz"
    full = cached(path, TokenCorpus, lambda: parse_package(package.ensure(folders.manual)))
    return full.limited(num_classes) if num_classes else full.with_min_count(MIN_COUNT)
