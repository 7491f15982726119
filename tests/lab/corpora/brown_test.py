import hashlib

import numpy as np
import pytest

from lab.corpora import brown
from tests.lab.corpora.archives import documents, write_archive
from tf_largeout.datasets import SourceFileError


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return write_archive(tmp_path_factory.mktemp("brown") / "brown.tgz", documents())


def words(corpus, row):
    return " ".join(corpus.class_texts[token] for token in corpus.documents.row(row))


def test_words_are_in_lower_case_without_tags_and_sentences_end():
    text = "\n\n\tThe/at A-1/nn and/or/cc ./.\n \n\t''/'' ./.\n"
    assert list(brown.words(text)) == [
        "the",
        "a-1",
        "and/or",
        ".",
        "<end>",
        "''",
        ".",
        "<end>",
    ]
    assert not list(brown.words("\n\n"))


def test_the_split_is_by_document(archive):
    corpus = brown.parse_archive(archive)
    names = [corpus.example_texts[row] for row in range(corpus.num_examples)]
    assert sorted(names) == sorted(documents()) and 20 < corpus.num_train < 40
    for row, name in enumerate(names):
        hashed = int(hashlib.md5(name.encode()).hexdigest()[:16], 16) % 10 == 0
        assert hashed == (row >= corpus.num_train)
        word = "<unknown>" if hashed else f"word{int(name[2:])}"
        assert words(corpus, row) == (f"the jury said , and\\/or . <end> it saw {word} . <end>")
    counts = corpus.token_counts(0, corpus.num_train)
    assert (np.diff(counts) <= 0).all() and corpus.num_classes == 9 + corpus.num_train + 1


@pytest.mark.parametrize("kept", [0, 4, 100, -300])
def test_a_truncated_archive_raises_an_error(tmp_path, archive, kept):
    cut = tmp_path / "cut.tgz"
    cut.write_bytes(archive.read_bytes()[:kept])
    with pytest.raises(SourceFileError, match="cut.tgz"):
        brown.parse_archive(cut)


def test_a_different_archive_raises_an_error(tmp_path):
    with pytest.raises(SourceFileError, match="ca01"):
        brown.parse_archive(write_archive(tmp_path / "other.tgz", {"index.js": "x"}))
