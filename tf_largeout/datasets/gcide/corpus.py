"""The corpus of gcide: fetched, parsed, cached."""

from tf_largeout.datasets.cache import cached
from tf_largeout.datasets.folders import Folders
from tf_largeout.datasets.gcide import source
from tf_largeout.datasets.gcide.parser import parse_package
from tf_largeout.datasets.token_corpus import TokenCorpus

LEAST_COUNT = 2  # In the training split; half of the tokens occur once.
_PARSER_VERSION = 1  # To be raised with every change of what is parsed.


def corpus(folders: Folders, num_classes: int | None = None) -> TokenCorpus:
    """The corpus of the most frequent tokens.

    Args:
        folders: the package is fetched into the manual one if it is not there.
        num_classes: tokens, the unknown one included. Default: all that the training split
            has `LEAST_COUNT` times or more.
    """
    package = source.PACKAGE
    path = folders.parsed / f"gcide-v{_PARSER_VERSION}-{package.sha256[:12]}.npz"
    full = cached(path, TokenCorpus, lambda: parse_package(package.ensure(folders.manual)))
    return full.limited(num_classes) if num_classes else full.with_counts_of(LEAST_COUNT)
