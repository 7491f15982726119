"""Tests of the errors of builders."""

from unittest import mock

import pytest
import tensorflow_datasets as tfds
from etils import epath

from tests.datasets.fake_sources import SOURCES, prepare
from tests.datasets.xmc_files import write_xmc
from tf_largeout import datasets
from tf_largeout.datasets import builders


def test_a_wrong_number_of_labels_is_an_error(tmp_path):
    write_xmc(tmp_path / "downloads" / "manual" / "xmc" / "Tiny")
    config = builders.XmcConfig(name="Tiny", num_labels=7)
    builder = tfds.builder("xmc", data_dir=tmp_path, config=config)
    message = "Expected 7 classes in xmc/Tiny.* have 6. Pass this number as `num_labels`"
    with pytest.raises(ValueError, match=message):
        builder.download_and_prepare()
    assert not builder.is_prepared()


def test_source_files_that_have_changed_are_an_error(tmp_path):
    prepare("xmc", tmp_path)
    train = tmp_path / "downloads" / "manual" / "xmc" / "Tiny" / "train.txt"
    train.write_text("1 10 6\n5 0:1\n")
    builder = tfds.builder("xmc", data_dir=tmp_path, config=SOURCES["xmc"].config)
    again = tfds.download.DownloadConfig(download_mode=tfds.GenerateMode.REUSE_CACHE_IF_EXISTS)
    with pytest.raises(ValueError, match="source files of xmc/Tiny.* Create a new builder"):
        builder.download_and_prepare(download_config=again)
    builder = tfds.builder("xmc", data_dir=tmp_path, config=SOURCES["xmc"].config)
    builder.download_and_prepare()
    assert builder.info.splits["train"].num_examples == 1


def test_a_missing_source_file_is_an_error(tmp_path):
    with pytest.raises(datasets.SourceFileError, match="Eurlex-4K/train.txt is missing"):
        tfds.load("xmc", data_dir=tmp_path)


def test_source_files_must_be_local():
    manager = mock.Mock(download_dir=epath.Path("gs://bucket/downloads"))
    with pytest.raises(ValueError, match="must be the path of a local folder"):
        builders.folders_of(manager)
