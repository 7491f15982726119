"""From package to corpus, with worker processes."""

import hashlib

import numpy as np
import pytest

from lab.corpora import c_functions
from lab.corpora.linux import FunctionTable, select, source_files
from lab.corpora.parser_workers import ParserWorkers
from tests.lab.corpora.linux_package import sources, write_package
from tf_largeout.datasets import SourceFileError


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return write_package(tmp_path_factory.mktemp("linux") / "package.deb", sources())


@pytest.fixture(scope="module")
def table(package):
    return FunctionTable.from_batches(
        ParserWorkers(c_functions.__file__, 2).parse(source_files(package), 3)
    )


def rows(corpus):
    for i in range(corpus.num_examples):
        yield corpus.example_texts[i], [corpus.class_texts[k] for k in corpus.labels.row(i)]


def test_c_files_are_read_and_links_skipped(package):
    assert {path: text.decode() for path, text in source_files(package)} == {
        path: text for path, text in sources().items() if path.endswith(".c")
    }


def test_examples_are_the_functions_that_call_something(table):
    labels = dict(rows(select(table, "functions")))
    assert len(labels) == 80
    assert labels["kernel/a7.c: open_7"] == ["lock", "only_7"]
    assert labels["kernel/a7.c: shut_7"] == ["lock"]


@pytest.mark.parametrize(
    "vocabulary, labels",
    [
        ("functions", {"lock", "only_7"}),
        ("constants", {"lock", "only_7", "MAX_LEN"}),
        ("fields", {"lock", "only_7", "MAX_LEN", "size"}),
    ],
)
def test_each_vocabulary_adds_a_kind(table, vocabulary, labels):
    corpus = select(table, vocabulary)
    assert set(dict(rows(corpus))["kernel/a7.c: open_7"]) == labels
    assert corpus.num_classes == 41 + len(labels) - 2


def test_the_split_is_by_file(table):
    corpus = select(table, "functions")
    files = [text.split(":")[0] for text, _ in rows(corpus)]
    train, test = files[: corpus.num_train], files[corpus.num_train :]
    assert test and not set(train) & set(test)
    for path in {*train, *test}:
        hashed = int(hashlib.md5(path.encode()).hexdigest(), 16) % 10 == 0
        assert hashed == (path in test)


def test_vocabularies_come_from_the_training_split(table):
    corpus = select(table, "functions")
    counts = corpus.label_counts(np.arange(corpus.num_train))
    assert (np.diff(counts) <= 0).all() and corpus.class_texts[0] == "lock"
    # Classes of the test split alone come last. Features of the test split alone are dropped.
    num_test_files = (corpus.num_examples - corpus.num_train) // 2
    assert np.count_nonzero(counts == 0) == num_test_files
    trained = corpus.features.values[: corpus.features.offsets[corpus.num_train]]
    assert set(range(1, corpus.vocabulary_size)) == set(trained)
    assert set(corpus.features.values) <= set(trained)


def test_the_number_of_workers_changes_nothing(package, table):
    alone = FunctionTable.from_batches(
        ParserWorkers(c_functions.__file__, 1).parse(source_files(package), 3)
    )
    for name, array in table.to_arrays().items():
        np.testing.assert_array_equal(array, alone.to_arrays()[name])


@pytest.mark.parametrize("kept", [4, 100, 400, -200])
def test_a_truncated_package_raises_an_error(tmp_path, package, kept):
    cut = tmp_path / "cut.deb"
    cut.write_bytes(package.read_bytes()[:kept])
    with pytest.raises(SourceFileError, match="cut.deb"):
        list(source_files(cut))


def test_another_package_raises_an_error(tmp_path):
    other = write_package(tmp_path / "other.deb", sources(2), member="./usr/bin/other")
    with pytest.raises(SourceFileError, match="linux-source-"):
        list(source_files(other))
