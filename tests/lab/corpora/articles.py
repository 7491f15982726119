"""A tiny dictionary in the layout of the Debian package."""

import gzip

from tests.lab.corpora.packages import write_debian_package

FILE = "./usr/share/dictd/gcide.dict.dz"


def write_dictionary(path, articles, file=FILE):
    """Writes the articles as a package."""
    text = "\n\n".join(["", *articles, ""])
    return write_debian_package(path, {file: gzip.compress(text.encode())})


def articles(num_articles=40):
    """Returns two articles for each of the headwords Word0, Word1, ..."""
    return [
        f'Word{i // 2} \\Wo"rd\\, n. [L. verbum]\n   1. An own{i} word.\n'
        "   [1913 Webster]\n\n   Syn: See {Other}."
        for i in range(num_articles)
    ]
