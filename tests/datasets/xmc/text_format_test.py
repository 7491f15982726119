import numpy as np
import pytest

from tests.datasets.xmc.files import TEST, TRAIN, write_xmc
from tf_largeout import datasets
from tf_largeout.datasets import SourceFileError


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "downloads" / "manual" / "xmc" / "Tiny"


def load(tmp_path, **arguments):
    return datasets.load("xmc/Tiny", data_dir=tmp_path, **arguments)


def test_a_file_is_read_as_it_stands(tmp_path, folder):
    write_xmc(folder)
    data = load(tmp_path, batch_size=4, shuffle_seed=None)
    features, labels = next(iter(data.train))
    ids = [[1, 10, 0], [3, 0, 0], [5, 0, 0], [2, 3, 4]]
    np.testing.assert_array_equal(features["ids"], ids)
    weights = [[0.5, 1, 0], [0.1, 0, 0], [2, 0, 0], [1, 2, 3]]
    np.testing.assert_array_equal(features["weights"], np.float32(weights))
    shown = [[data.class_text(k) for k in row if k >= 0] for row in labels.numpy()]
    assert shown == [["label 3", "label 1"], ["label 3"], [], ["label 5", "label 3", "label 1"]]
    assert data.vocabulary_size == 11 and data.max_features == 3


def test_all_labels_of_the_header_are_classes_in_falling_training_count(tmp_path, folder):
    write_xmc(folder)
    data = load(tmp_path)
    assert [data.class_text(k) for k in range(3)] == ["label 3", "label 1", "label 5"]
    assert data.num_classes == 6 and data.num_train_classes == 3
    np.testing.assert_array_equal(data.label_counts, [3, 2, 1, 0, 0, 0])


@pytest.mark.parametrize(
    "train, message",
    [
        ("", "Expected the first line"),
        (TRAIN.replace("4 10 6", "4 10"), "Expected the first line"),
        (TRAIN[:-22], "Expected 4 examples .* it has 3"),
        (TRAIN.replace("9:1", "10:1"), "line 2 .* feature numbers must be 0 ... 9"),
        (TRAIN.replace("5,3", "6,3"), "line 5 .* label numbers must be 0 ... 5"),
        (TRAIN.replace("2:1e-1", "2"), "Expected line 3"),
        (TRAIN.replace("4:2", "4:x"), "Expected line 4"),
        (TRAIN.replace("4 10 6", "4 11 6"), "different data sets"),
    ],
)
def test_a_damaged_file_is_refused_and_nothing_is_cached(tmp_path, folder, train, message):
    write_xmc(folder, train)
    with pytest.raises(SourceFileError, match=message):
        load(tmp_path)
    assert not list(tmp_path.rglob("*.npz")) and not list(tmp_path.rglob("*.part"))


def test_a_changed_file_is_read_again(tmp_path, folder):
    write_xmc(folder)
    load(tmp_path)
    (folder / "test.txt").write_text("1 10 6\n" + TEST.splitlines()[1] + "\n")
    assert load(tmp_path).num_test == 1


def test_a_missing_file_is_an_error_that_says_where_it_belongs(tmp_path):
    with pytest.raises(SourceFileError, match="train.txt is missing. .*xmc/NAME/train.txt"):
        load(tmp_path)


def test_a_folder_must_be_named(tmp_path):
    with pytest.raises(ValueError, match="needs the name of a folder"):
        datasets.load("xmc", data_dir=tmp_path)
