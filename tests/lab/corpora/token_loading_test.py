"""Tests of `load` with a tiny Brown corpus."""

import numpy as np
import pytest

from lab import corpora
from lab.corpora import brown
from tests.datasets.sources import pinned
from tests.lab.corpora.archives import documents, write_archive

NUM_TEST, WORDS = 2, 12  # documents, and tokens of each


@pytest.fixture
def data_dir(tmp_path, monkeypatch):
    manual = tmp_path / "downloads" / "manual"
    manual.mkdir(parents=True)
    archive = pinned(brown.ARCHIVE, write_archive(manual / "brown.tgz", documents()))
    monkeypatch.setattr(brown, "ARCHIVE", archive)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    return tmp_path


def labels_of(split):
    labels = np.concatenate([labels.numpy().ravel() for _, labels in split])
    return labels[labels >= 0]


def test_a_text_is_cut_into_windows(data_dir):
    data = corpora.load("brown", batch_size=4, sequence_length=7, shuffle_seed=None)
    train = (40 - NUM_TEST) * WORDS
    assert (len(data.train_tokens), len(data.test_tokens)) == (train, NUM_TEST * WORDS)
    assert (data.num_train, data.num_test) == (-(-(train - 1) // 7), 4)
    assert data.num_classes == data.vocabulary_size == len(data.label_counts) == 9 + 38 + 1
    assert data.num_train_classes == data.unknown_id == 47
    for tokens, labels in data.train.take(1):
        assert tokens.shape == labels.shape == (4, 7) and data.max_features == 7
    np.testing.assert_array_equal(labels_of(data.train), data.train_tokens[1:])
    np.testing.assert_array_equal(labels_of(data.test), data.test_tokens[1:])
    np.testing.assert_array_equal(
        data.label_counts, np.bincount(data.train_tokens, minlength=48)
    )
    assert data.test_text(0) == "the jury said , and\\/or . <end>"
    assert data.test_text(1) == "it saw <unknown> . <end> the jury"


def test_a_vocabulary_has_the_requested_size(data_dir):
    data = corpora.load("brown", vocabulary_size=5)
    assert data.num_classes == 5 and data.max_features == 64
    texts = [data.class_text(class_id) for class_id in range(5)]
    assert texts[data.unknown_id] == "<unknown>" == texts[0] and "<end>" in texts
    assert (np.diff(data.label_counts) <= 0).all()


def test_validation_is_whole_documents_of_the_training_split(data_dir):
    whole = corpora.load("brown")
    data = corpora.load("brown", batch_size=4, validation_fraction=0.3)
    held_out = 1 + len(labels_of(data.validation))
    assert held_out % WORDS == 0 and 0 < held_out < 0.6 * len(whole.train_tokens)
    assert held_out + len(data.train_tokens) == len(whole.train_tokens)
    np.testing.assert_array_equal(data.test_tokens, whole.test_tokens)
    counts = np.bincount(whole.train_tokens[:held_out], minlength=data.num_classes)
    np.testing.assert_array_equal(data.label_counts + counts, whole.label_counts)
    assert data.num_train_classes == whole.num_train_classes


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"name": "brown/all"}, "must be .place_names. or"),
        ({"name": "linux_callees/all"}, "functions, constants, fields"),
        ({"vocabulary_size": 1}, "`vocabulary_size` must be an integer of at least 2 or None"),
        ({"vocabulary_size": "10"}, "`vocabulary_size` must be an integer of at least 2"),
        ({"sequence_length": 0}, "`sequence_length` must be a positive integer"),
        ({"validation_fraction": 1e-15}, "38 for training and 0 for validation"),
    ],
)
def test_bad_arguments_raise_an_error(data_dir, arguments, message):
    with pytest.raises(ValueError, match=message):
        corpora.load(**{"name": "brown"} | arguments)
