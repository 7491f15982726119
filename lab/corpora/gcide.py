"""The dictionary GCIDE, from its Debian package. See README.md."""

import gzip
import os
import pathlib
import re

import numpy as np

from lab.corpora.packages import debian_package, installed_files
from lab.corpora.text import END, TokenCorpus
from tf_largeout.datasets.corpus import cached, md5_uint64
from tf_largeout.datasets.sources import Folders, SourceFileError, progress

PACKAGE = debian_package(
    "dict-gcide",
    "0.48.5+nmu2",
    "7b0af5cfde3cbdef5e9d6e78f92ec335ced7c2790f37a40f49bebc6f7347ac0f",
)
MIN_COUNT = 2  # In the training split. Half of the tokens occur only once.
_FILE = "gcide.dict.dz"  # Compressed by dictzip, whose format gzip can read.
_NEXT_ARTICLE = re.compile(r"\n\n+(?=\S)")  # Only the first line of an article is not indented.
_TOKEN = re.compile(r"\w+|[^\w\s]")


def corpus(folders: Folders, num_classes: int | None = None) -> TokenCorpus:
    """Returns the corpus with a vocabulary of the most frequent tokens.

    Args:
        folders: Folders of the dataset. If the package is missing, it is downloaded to
            `folders.manual`.
        num_classes: Size of the vocabulary, including the unknown token. Defaults to all tokens
            that occur at least `MIN_COUNT` times in the training split.
    """
    path = folders.parsed / f"gcide-v2-{PACKAGE.sha256[:12]}.npz"
    full = cached(path, TokenCorpus, lambda: parse_package(PACKAGE.ensure(folders.manual)))
    return full.limited(num_classes) if num_classes else full.with_min_count(MIN_COUNT)


def parse_package(path: pathlib.Path) -> TokenCorpus:
    """Parses the package. The vocabulary of the result is every token of the training split.

    An article is in the test split if the first 8 bytes of the md5 of its headword are a
    multiple of 10. So all articles of one headword are in the same split.

    Raises:
        SourceFileError: If the file is damaged, or is a different package.
    """
    numbers: dict[str, int] = {}
    tokens, headwords = [], []
    articles = _NEXT_ARTICLE.split(_read(path).strip())
    for article in progress(articles, desc="Reading articles", unit=" articles"):
        words = [*_TOKEN.findall(article.lower()), END]
        ids = [numbers.setdefault(word, len(numbers)) for word in words]
        tokens.append(np.array(ids, np.int32))
        headwords.append(headword(article))
    return TokenCorpus.from_documents(
        tokens, numbers, headwords, headwords, md5_uint64(headwords) % 10 == 0
    )


def headword(article: str) -> str:
    r"""Returns the first line of an article up to the pronunciation, if any, in lower case.

    Args:
        article: Text such as `Lari \Lari\ prop. n.`, followed by indented lines.
    """
    return article.partition("\n")[0].partition(" \\")[0].strip().lower()


def _read(path: pathlib.Path) -> str:
    with installed_files(path, "Reading package", "the dictionary GCIDE") as files:
        for member in files:
            content = files.extractfile(member)
            if content and os.path.basename(member.name) == _FILE:
                return gzip.decompress(content.read()).decode("utf-8", "replace")
    raise SourceFileError(f"Expected a file {_FILE} in {path}, but there is none.")
