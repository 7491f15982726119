"""Tests of the tensorflow-datasets API with each builder, without the source files."""

import collections
import functools
import os
import pathlib
import shutil
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.datasets.fake_sources import NUM_SHARDS, SOURCES, full_name, prepare
from tests.slow import slow_but


def some(*kept):
    """Runs a test for `kept` in the short suite. All builders have the same base class."""
    return pytest.mark.parametrize("name", slow_but(kept, SOURCES), indirect=True)


@pytest.fixture(scope="module", params=SOURCES)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def source(name):
    return SOURCES[name]


@pytest.fixture(scope="module")
def prepared(name, tmp_path_factory):
    """Returns a `data_dir` with the prepared dataset but no sources, and `load`'s result."""
    data_dir = tmp_path_factory.mktemp(name)
    loaded = prepare(name, data_dir)
    shutil.rmtree(data_dir / "downloads")
    return data_dir, loaded


@pytest.fixture
def load(name, prepared, monkeypatch):
    """Returns `tfds.load` of the prepared dataset, without network access."""

    def refuse(*_, **__):
        raise AssertionError("A prepared dataset must not use the network.")

    monkeypatch.setattr(socket, "socket", refuse)
    data_dir, _ = prepared
    return functools.partial(tfds.load, full_name(name), data_dir=data_dir)


def modified(folder):
    return {path: path.stat().st_mtime_ns for path in pathlib.Path(folder).iterdir()}


def texts(dataset):
    return [example["text"].decode() for example in tfds.as_numpy(dataset)]


def test_importing_registers_the_builders_but_not_their_base_classes(name):
    assert tfds.builder_cls(name) is SOURCES[name].builder
    registered = tfds.core.registered._DATASET_REGISTRY.values()
    ours = [cls for cls in registered if cls.__module__.startswith(("tf_largeout", "lab"))]
    assert sorted(cls.name for cls in ours) == sorted(SOURCES)


@some("linux_callees", "xmc")
def test_examples_and_class_texts_equal_those_of_load(load, prepared, source):
    _, loaded = prepared
    corpus = loaded.corpus
    splits, info = load(with_info=True, download=False)
    assert list(map(len, (splits["train"], splits["test"]))) == [
        source.num_train,
        source.num_test,
    ]
    label_rows = corpus.documents if source.labels == "tokens" else corpus.labels
    expected = collections.Counter(
        (corpus.example_texts[row], *label_rows.row(row)) for row in range(corpus.num_examples)
    )
    found = collections.Counter(
        (example["text"].decode(), *np.atleast_1d(example[source.labels]))
        for split in splits.values()
        for example in tfds.as_numpy(split)
    )
    assert found == expected
    assert class_texts(info, source) == list(corpus.class_texts)


def class_texts(info, source):
    if source.labels == "tokens":
        return info.metadata["vocabulary"]
    label = info.features[source.labels]
    return getattr(label, "feature", label).names


@some("brown", "place_names", "xmc")  # One for each kind of labels and features.
def test_supervised_examples_fit_a_model(load, source):
    pairs = load(split="test", as_supervised=True)
    for example, (features, labels) in zip(load(split="test"), pairs, strict=True):
        np.testing.assert_array_equal(labels, example[source.labels])
        if source.labels == "tokens":
            np.testing.assert_array_equal(features, example["tokens"])
        elif "weights" in example:
            np.testing.assert_array_equal(features["ids"], example["features"])
            np.testing.assert_array_equal(features["weights"], example["weights"])
        else:
            np.testing.assert_array_equal(features, example["features"])


@some("xmc")
def test_slices_of_splits_and_whole_splits_as_one_batch(load, source):
    half, rest = load(split=["train[:50%]", "train[50%:]"])
    assert 0 < len(half) < source.num_train
    assert sorted(texts(half) + texts(rest)) == sorted(texts(load(split="train")))
    whole = tfds.as_numpy(load(split="train", batch_size=-1))
    assert len(whole["text"]) == len(whole[source.labels]) == source.num_train


@some("xmc")
def test_the_seed_of_the_read_config_shuffles_files(load, source):
    def shuffled(seed):
        config = tfds.ReadConfig(shuffle_seed=seed)
        return texts(load(split="train", shuffle_files=True, read_config=config))

    orders = [shuffled(seed) for seed in range(4)]
    assert orders[1] == shuffled(1)
    assert len(set(map(tuple, orders))) > 1
    assert len({tuple(sorted(order)) for order in orders}) == 1
    one_file = tfds.ReadConfig(interleave_cycle_length=1, add_tfds_id=True)
    examples = tfds.as_numpy(load(split="train", read_config=one_file))
    files = [example["tfds_id"].split(b"__")[0] for example in examples]
    assert files == sorted(files) and len(files) == source.num_train


@some("xmc")
def test_a_prepared_dataset_is_not_prepared_again(name, prepared, source):
    data_dir, _ = prepared
    builder = tfds.builder(name, data_dir=data_dir, config=source.config)
    assert builder.is_prepared() and builder.info.splits["train"].num_shards == NUM_SHARDS
    files = modified(builder.data_dir)
    builder.download_and_prepare()
    builder.download_and_prepare()
    assert files == modified(builder.data_dir)
    assert len(builder.as_dataset(split="test")) == builder.info.splits["test"].num_examples


@some("place_names")
def test_examples_are_shown_as_a_data_frame(load, source):
    dataset, info = load(split="test", with_info=True)
    frame = tfds.as_dataframe(dataset.take(2), info)
    assert set(frame) == set(info.features) and len(frame) == 2
    if source.labels == "label":
        assert class_texts(info, source)[frame["label"][0]] in frame._repr_html_()


@pytest.mark.slow
def test_a_new_process_loads_a_prepared_dataset(tmp_path):
    prepare("place_names", tmp_path)
    shutil.rmtree(tmp_path / "downloads")
    program = (
        "import sys, tf_largeout\n"
        "assert 'tensorflow_datasets' not in sys.modules\n"
        "import tf_largeout.datasets.builders, tensorflow_datasets as tfds\n"
        "print(len(tfds.load('place_names', split='test')))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"TFDS_DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert result.stdout == "3\n", result.stderr
