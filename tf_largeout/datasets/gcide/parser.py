"""Reads the articles of the dictionary from its Debian package."""

import gzip
import os
import re

import numpy as np

from tf_largeout.datasets.debian_package import installed_files
from tf_largeout.datasets.errors import SourceFileError
from tf_largeout.datasets.hashing import is_tenth
from tf_largeout.datasets.progress import tqdm
from tf_largeout.datasets.token_corpus import END, TokenCorpus

_FILE = "gcide.dict.dz"  # Compressed by dictzip, whose format gzip can read.
_NEXT_ARTICLE = re.compile(r"\n\n+(?=\S)")  # Only the first line of an article is not indented.
_TOKEN = re.compile(r"\w+|[^\w\s]")


def parse_package(path: str | os.PathLike[str]) -> TokenCorpus:
    """Parses the package. The vocabulary of the result is every token of the training split.

    An article is in the test split if the first 8 bytes of the md5 of its headword are a
    multiple of 10. So all articles of one headword are in the same split.

    Raises:
        SourceFileError: If the file is damaged, or is a different package.
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
    r"""Returns the first line of an article up to the pronunciation, if any, in lower case.

    Args:
        article: Text such as `Lari \Lari\ prop. n.`, followed by indented lines.
    """
    return article.partition("\n")[0].partition(" \\")[0].strip().lower()


def _read(path: str | os.PathLike[str]) -> str:
    with installed_files(path, "Reading package", "the dictionary GCIDE") as files:
        for member in files:
            content = files.extractfile(member)
            if content and os.path.basename(member.name) == _FILE:
                return gzip.decompress(content.read()).decode("utf-8", "replace")
    raise SourceFileError(f"Expected a file {_FILE} in {path}, but there is none.")
