import numpy as np
import pytest

from lab.corpora.text import UNKNOWN, TokenCorpus
from tf_largeout.datasets.corpus import md5_uint64


def corpus():
    """Two training documents and a test document of the words a ... e."""
    types = ["a", "b", "c", "d", "e"]
    tokens = [np.array(row, np.int32) for row in ([0, 1, 1, 1], [0, 4, 0], [3, 3, 2, 0])]
    names = ["first", "test", "second"]
    return TokenCorpus.from_documents(
        tokens, types, names, names, np.array([False, True, False])
    )


def words(corpus):
    return {
        corpus.example_texts[row]: [corpus.class_texts[k] for k in corpus.documents.row(row)]
        for row in range(corpus.num_examples)
    }


def class_texts(corpus):
    return [corpus.class_texts[class_id] for class_id in range(corpus.num_classes)]


def test_the_vocabulary_equals_that_of_the_training_split_by_descending_count():
    full = corpus()
    assert class_texts(full) == ["b", "a", "d", "c", UNKNOWN] and full.unknown_id == 4
    assert full.token_counts(0, full.num_train).tolist() == [3, 2, 2, 1, 0]
    assert words(full) == {
        "first": ["a", "b", "b", "b"],
        "second": ["d", "d", "c", "a"],
        "test": ["a", UNKNOWN, "a"],
    }


def test_documents_of_a_split_are_in_the_order_of_their_hashes():
    full = corpus()
    names = [full.example_texts[row] for row in range(3)]
    assert full.num_train == 2 and names[2] == "test"
    np.testing.assert_array_equal(full.group_hashes, md5_uint64(names))
    assert full.group_hashes[0] < full.group_hashes[1]


def test_a_smaller_vocabulary_ranks_all_other_tokens_as_one_class():
    small = corpus().limited(3)
    assert class_texts(small) == ["b", UNKNOWN, "a"] and small.unknown_id == 1
    assert small.token_counts(0, small.num_train).tolist() == [3, 3, 2]
    assert words(small)["second"] == [UNKNOWN, UNKNOWN, UNKNOWN, "a"]
    smaller = corpus().limited(2)
    assert class_texts(smaller) == [UNKNOWN, "b"]
    assert class_texts(small.limited(2)) == class_texts(smaller)
    np.testing.assert_array_equal(small.limited(2).documents.values, smaller.documents.values)


def test_a_vocabulary_with_a_minimum_count():
    assert class_texts(corpus().with_min_count(2)) == ["b", "a", "d", UNKNOWN]
    assert corpus().with_min_count(1).num_classes == 5


@pytest.mark.parametrize("num_classes", [5, 2**60])
def test_a_limit_above_the_number_of_classes_keeps_all(num_classes):
    assert class_texts(corpus().limited(num_classes)) == class_texts(corpus())


def test_a_corpus_is_restored_from_its_arrays():
    small = corpus().limited(3)
    again = TokenCorpus.from_arrays(small.to_arrays())
    assert words(again) == words(small) and again.documents.values.dtype == np.int32
    assert (again.num_train, again.unknown_id) == (small.num_train, small.unknown_id)
    np.testing.assert_array_equal(again.group_hashes, small.group_hashes)
