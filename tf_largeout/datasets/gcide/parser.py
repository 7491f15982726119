"""Reads the articles of the dictionary in Debian's package."""

import gzip
import os
import re

import numpy as np

from tf_largeout.datasets.debian_package import installed_files
from tf_largeout.datasets.errors import SourceFileError
from tf_largeout.datasets.hashing import is_tenth
from tf_largeout.datasets.progress import tqdm
from tf_largeout.datasets.token_corpus import END, TokenCorpus

_FILE = "gcide.dict.dz"  # Compressed by dictzip, which gzip reads.
_NEXT_ARTICLE = re.compile(r"\n\n+(?=\S)")  # All lines but an article's first are indented.
_TOKEN = re.compile(r"\w+|[^\w\s]")


def parse_package(path: str | os.PathLike[str]) -> TokenCorpus:
    """The `TokenCorpus` of the package, with every token of the training split.

    An article is in the test split where the md5 of its headword, as a number, is a multiple
    of 10: all articles of one headword are in one split.

    Raises:
        SourceFileError: the file is no such package, or is damaged.
    """
    numbers: dict[str, int] = {}
    tokens, headwords = [], []
    articles = _NEXT_ARTICLE.split(_read(path).strip())
    for article in tqdm(articles, desc="Reading articles", unit=" articles"):
        words = [*_TOKEN.findall(article.lower()), END]
        ids = [numbers.setdefault(word, len(numbers)) for word in words]
        tokens.append(np.array(ids, np.int32))
        headwords.append(headword(article))
    return TokenCorpus.from_documents(
        tokens, numbers, headwords, headwords, is_tenth(headwords)
    )


def headword(article: str) -> str:
    r"""What stands before the pronunciation, or in the first line, in lower case.

    Args:
        article: such as `Lari \Lari\ prop. n.` and indented lines.
    """
    return article.partition("\n")[0].partition(" \\")[0].strip().lower()


def _read(path: str | os.PathLike[str]) -> str:
    with installed_files(path, "Reading package", "the dictionary GCIDE") as files:
        for member in files:
            content = files.extractfile(member)
            if content and os.path.basename(member.name) == _FILE:
                return gzip.decompress(content.read()).decode("utf-8", "replace")
    raise SourceFileError(f"Expected a file {_FILE} in {path}; there is none.")
