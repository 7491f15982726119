import errno
import tracemalloc

import numpy as np
import pytest

from tests.datasets.xmc_files import TEST, TRAIN, write_xmc
from tf_largeout import datasets
from tf_largeout.datasets import SourceFileError, xmc


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "downloads" / "manual" / "xmc" / "Tiny"


def load(tmp_path, **arguments):
    return datasets.load("xmc/Tiny", data_dir=tmp_path, **arguments)


def test_examples_keep_the_order_and_the_values_of_the_file(tmp_path, folder):
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


def test_all_labels_of_the_header_are_classes_in_descending_training_count(tmp_path, folder):
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
        ("9" * 5000 + " 10 6\n", "Expected the first line"),
        ("\x00" * 5000, "Expected the first line"),
        (TRAIN.replace("4 10", "400 10"), "at most 55 examples .* it states 400"),
        (TRAIN.replace("10 6", "2147483648 6"), "at most 2,147,483,647 features"),
        (TRAIN.replace("10 6", "10 4294967296"), "at most 100,000,000 labels"),
        ("0 10 6\n", "has no examples"),
        (TRAIN + "1 1:1\n", "Expected 4 examples .* it has 5"),
        (
            TRAIN.replace("9:1", "10:1"),
            "line 2 .* feature numbers .* from 0 to 9, but one is '10'",
        ),
        (TRAIN.replace("9:1", "-9:1"), "line 2 .* feature numbers .* one is '-9'"),
        (
            TRAIN.replace("9:1", f"{2**31}:1"),
            "line 2 .* feature numbers .* one is '2147483648'",
        ),
        (TRAIN.replace("9:1", "9" * 40 + ":1"), "line 2 .* feature numbers .* one is '999"),
        (TRAIN.replace("9:1", ":1"), "line 2 .* feature numbers .* one is ''"),
        (TRAIN.replace("9:1", "1_0:1"), "line 2 .* feature numbers .* one is '1_0'"),
        (
            TRAIN.replace("9:1", "9:nan"),
            "line 2 .* finite in float32, but one is 'nan'",
        ),
        (
            TRAIN.replace("9:1", "9:-inf"),
            "line 2 .* finite in float32, but one is '-inf'",
        ),
        (
            TRAIN.replace("9:1", "9:1e400"),
            "line 2 .* finite in float32, but one is '1e400'",
        ),
        (
            TRAIN.replace("9:1", "9:1e39"),
            "line 2 .* finite in float32, but one is '1e39'",
        ),
        (TRAIN.replace("9:1", "9:1:1"), "line 2 .* values must be numbers .* one is '1:1'"),
        (TRAIN.replace("9:1", "9:1_0"), "line 2 .* values must be numbers .* one is '1_0'"),
        (TRAIN.replace("9:1", "9:\u0661"), "line 2 .* values must be numbers"),
        (TRAIN.replace("5,3", "6,3"), "line 5 .* label numbers .* from 0 to 5, but one is '6'"),
        (TRAIN.replace("5,3", "5,,3"), "line 5 .* label numbers .* one is ''"),
        (TRAIN.replace("2:1e-1", "2"), "Expected line 3"),
        (TRAIN.replace("4:2", "4:x"), "Expected line 4"),
        (TRAIN.replace("4 10 6", "4 11 6"), "different datasets"),
    ],
)
def test_a_damaged_file_is_refused_and_nothing_is_cached(tmp_path, folder, train, message):
    write_xmc(folder, train)
    with pytest.raises(SourceFileError, match=message):
        load(tmp_path)
    assert not list(tmp_path.rglob("*.npz")) and not list(tmp_path.rglob("*.unfinished"))


def test_windows_line_endings_and_final_blank_lines_are_accepted(tmp_path, folder):
    write_xmc(folder)
    expected = load(tmp_path).corpus.to_arrays()
    for split, text in (("train", TRAIN), ("test", TEST)):
        windows = text.replace("\n", " \r\n") + "\r\n\r\n"
        (folder / f"{split}.txt").write_bytes(windows.encode())
    found = load(tmp_path).corpus.to_arrays()
    for name in expected.keys() - {"group_hashes"}:
        np.testing.assert_array_equal(found[name], expected[name])


def test_a_label_that_a_line_repeats_counts_once(tmp_path, folder):
    write_xmc(folder, TRAIN.replace("5,3,1", "3,5,3"))
    np.testing.assert_array_equal(load(tmp_path).label_counts, [3, 1, 1, 0, 0, 0])


def test_all_examples_may_lack_features_and_labels(tmp_path, folder):
    write_xmc(folder, "2 10 6\n \n\n", "1 10 6\n\n")
    ((features, labels),) = load(tmp_path, batch_size=2).train
    np.testing.assert_array_equal(features["weights"], [[0], [0]])
    np.testing.assert_array_equal(labels, [[-1], [-1]])


def test_class_texts_are_not_stored_as_python_objects(tmp_path, folder):
    write_xmc(folder, TRAIN.replace("10 6", "10 60000"), TEST.replace("10 6", "10 60000"))
    tracemalloc.start()
    xmc.parse(folder / "train.txt", folder / "test.txt")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60_000 * 100


@pytest.mark.parametrize("name", ["/a", "..", ".", "Tiny/", "../xmc/Tiny", "a\0b", "a\\b"])
def test_a_folder_name_must_not_be_a_path(tmp_path, folder, name):
    write_xmc(folder)
    with pytest.raises(ValueError, match="must be the name of one folder"):
        datasets.load(f"xmc/{name}", data_dir=tmp_path)


def test_an_unreadable_file_is_reported(tmp_path, folder, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    write_xmc(folder)
    monkeypatch.setattr(xmc, "open", refuse, raising=False)
    with pytest.raises(SourceFileError, match="train.txt cannot be read: .*Permission denied"):
        load(tmp_path)


def test_a_folder_name_that_is_too_long_raises_an_error(tmp_path):
    with pytest.raises(SourceFileError, match="train.txt (is missing|cannot be read)"):
        datasets.load(f"xmc/{'a' * 400}", data_dir=tmp_path)


def test_a_changed_file_is_read_again(tmp_path, folder):
    write_xmc(folder)
    load(tmp_path)
    (folder / "test.txt").write_text("1 10 6\n" + TEST.splitlines()[1] + "\n")
    assert load(tmp_path).num_test == 1


def test_a_missing_file_is_an_error_that_says_where_it_belongs(tmp_path):
    with pytest.raises(SourceFileError, match="train.txt is missing. .*xmc/NAME/train.txt"):
        load(tmp_path)


def test_a_missing_folder_argument_raises_an_error(tmp_path):
    with pytest.raises(ValueError, match="needs the name of a folder"):
        datasets.load("xmc", data_dir=tmp_path)
