import hashlib

import pytest

from lab.corpora import gcide
from tests.lab.corpora.articles import articles, write_dictionary
from tf_largeout.datasets import SourceFileError
from tf_largeout.datasets.sources import Folders


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return write_dictionary(tmp_path_factory.mktemp("gcide") / "gcide.deb", articles())


def words(corpus, row):
    return " ".join(corpus.class_texts[token] for token in corpus.documents.row(row))


@pytest.mark.parametrize(
    "article, headword",
    [
        ("Lari \\Lari\\ prop. n.\n   A suborder", "lari"),
        ("Law of Charles \\Law\\, n.\n   Gas \\law\\", "law of charles"),
        ("laryngeal\n   adj. of the larynx", "laryngeal"),
    ],
)
def test_a_headword_ends_before_the_pronunciation(article, headword):
    assert gcide.headword(article) == headword


def test_articles_end_at_lines_that_are_not_indented(package):
    corpus = gcide.parse_package(package)
    assert corpus.num_examples == 40
    texts = [words(corpus, row) for row in range(corpus.num_train)]
    number = int(corpus.example_texts[0].removeprefix("word"))
    own = texts[0].split()[texts[0].split().index("an") + 1]
    assert own in (f"own{2 * number}", f"own{2 * number + 1}")
    assert texts[0] == (
        f'word{number} \\ wo " rd \\ , n . [ l . verbum ] 1 . an {own} word . '
        "[ 1913 webster ] syn : see { other } . <end>"
    )


def test_the_articles_of_a_headword_are_in_one_split(package):
    corpus = gcide.parse_package(package)
    assert 0 < corpus.num_train < 40
    for row in range(40):
        digest = hashlib.md5(corpus.example_texts[row].encode()).hexdigest()
        assert (int(digest[:16], 16) % 10 == 0) == (row >= corpus.num_train)


def test_by_default_the_vocabulary_is_the_tokens_that_occur_twice(
    package, tmp_path, monkeypatch
):
    monkeypatch.setattr(gcide.PACKAGE.__class__, "ensure", lambda *_: package)
    corpus = gcide.corpus(Folders.of_data_dir(tmp_path))
    texts = {corpus.class_texts[class_id] for class_id in range(corpus.num_classes)}
    assert "word" in texts and not any(text.startswith("own") for text in texts)
    assert gcide.corpus(Folders.of_data_dir(tmp_path), 7).num_classes == 7


@pytest.mark.parametrize("kept", [4, 100, -300])
def test_a_truncated_package_raises_an_error(tmp_path, package, kept):
    cut = tmp_path / "cut.deb"
    cut.write_bytes(package.read_bytes()[:kept])
    with pytest.raises(SourceFileError, match="cut.deb"):
        gcide.parse_package(cut)


def test_a_different_package_raises_an_error(tmp_path):
    other = write_dictionary(tmp_path / "other.deb", articles(2), file="./usr/share/other")
    with pytest.raises(SourceFileError, match="gcide.dict.dz"):
        gcide.parse_package(other)
