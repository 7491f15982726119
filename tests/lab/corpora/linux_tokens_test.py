import hashlib

import numpy as np
import pytest

from lab.corpora import c_tokens
from lab.corpora.linux import parse_tokens
from tests.lab.corpora.linux_package import sources, write_package
from tf_largeout.datasets import SourceFileError


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return write_package(tmp_path_factory.mktemp("linux") / "package.deb", sources())


@pytest.fixture(scope="module")
def corpus(package):
    return parse_tokens(package, num_workers=2, files_per_batch=3)


@pytest.mark.parametrize(
    "text, tokens",
    [
        ("a->b += 0x1fUL << 2;", ["a", "->", "b", "+=", "0x1fUL", "<<", "2", ";"]),
        ("x /* y */ = 'c'; // z", ["x", "=", '""', ";"]),
        ('f("a /* b", "\\"")/*\n"*/g', ["f", "(", '""', ",", '""', ")", "g"]),
        ("#define A(x) x##_1\n", ["#", "define", "A", "(", "x", ")", "x", "##", "_1"]),
        ("1.5e-3f+.5 a...b", ["1.5e-3f", "+", ".5", "a", "...", "b"]),
        ("i++<=--j>>=1&&!k", ["i", "++", "<=", "--", "j", ">>=", "1", "&&", "!", "k"]),
        (
            "p->q.r[3]={~1}",
            [*("p", "->", "q", ".", "r", "[", "3", "]", "=", "{", "~", "1", "}")],
        ),
        ("", []),
    ],
)
def test_tokens_of_c(text, tokens):
    assert c_tokens.tokens(text) == tokens


def test_a_batch_numbers_its_words_and_ends_each_file():
    batch = c_tokens.parse_files([("a.c", b"x = x;"), ("b.h", b"\xe9;")])
    words = [batch["words"][number] for number in batch["ids"]]
    assert words == ["x", "=", "x", ";", "<end>", "\xe9", ";", "<end>"]
    assert list(batch["lengths"]) == [5, 3]


def test_files_and_headers_are_documents_and_links_are_skipped(corpus):
    paths = [corpus.example_texts[row] for row in range(corpus.num_examples)]
    assert sorted(paths) == sorted(sources())
    for row, path in enumerate(paths):
        found = [corpus.class_texts[token] for token in corpus.documents.row(row)]
        expected = [*c_tokens.tokens(sources()[path]), "<end>"]
        known = {corpus.class_texts[class_id] for class_id in range(corpus.num_classes)}
        assert found == [word if word in known else "<unknown>" for word in expected]
        hashed = int(hashlib.md5(path.encode()).hexdigest(), 16) % 10 == 0
        assert hashed == (row >= corpus.num_train)


def test_the_number_of_workers_changes_nothing(package, corpus):
    alone = parse_tokens(package, num_workers=1, files_per_batch=5)
    for name, array in corpus.to_arrays().items():
        np.testing.assert_array_equal(array, alone.to_arrays()[name])


def test_a_truncated_package_raises_an_error(tmp_path, package):
    cut = tmp_path / "cut.deb"
    cut.write_bytes(package.read_bytes()[:-200])
    with pytest.raises(SourceFileError, match="cut.deb"):
        parse_tokens(cut, num_workers=1)
