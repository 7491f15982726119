"""Tiny source files for each dataset, and the builder that reads them."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any
from unittest import mock

import tensorflow_datasets as tfds

from lab import corpora
from lab.corpora import brown, gcide, linux
from lab.corpora import builders as corpus_builders
from tests.datasets.places import many_places, write_wheel
from tests.datasets.sources import pinned
from tests.datasets.xmc_files import write_xmc
from tests.lab.corpora.archives import documents, write_archive
from tests.lab.corpora.articles import articles, write_dictionary
from tests.lab.corpora.linux_package import sources, write_package
from tf_largeout.datasets import builders, place_names

NUM_SHARDS = 2


@dataclasses.dataclass(frozen=True)
class FakeSource:
    """A dataset with tiny source files.

    Attributes:
        builder: Class of the builder.
        write: Writes the source files to a folder. Returns the patches that make the builder
            accept them: a list of `(object, attribute, value)`.
        num_train: Number of training examples.
        num_test: Number of test examples.
        labels: Name of the feature with the class ids.
        config: The `BuilderConfig`, or None for the builder's default.
    """

    builder: Any
    write: Callable
    num_train: int
    num_test: int
    labels: str = "tokens"
    config: Any = None

    @contextlib.contextmanager
    def written(self, folder):
        """Writes the source files to `folder`; within this context the builder accepts them."""
        with contextlib.ExitStack() as stack:
            for patch in self.write(folder):
                stack.enter_context(mock.patch.object(*patch))
            yield


def _write_brown(folder):
    path = write_archive(folder / "brown.tgz", documents())
    return [(brown, "ARCHIVE", pinned(brown.ARCHIVE, path))]


def _write_gcide(folder):
    path = write_dictionary(folder / "gcide.deb", articles())
    return [
        (gcide, "PACKAGE", pinned(gcide.PACKAGE, path)),
        (corpus_builders.Gcide.BUILDER_CONFIGS[0], "num_classes", 43),
    ]


def _write_linux(folder):
    path = write_package(folder / "linux.deb", sources())
    callees = dict(zip(corpus_builders.LinuxCallees.BUILDER_CONFIGS, (41, 42, 43), strict=True))
    return [
        (linux, "PACKAGE", pinned(linux.PACKAGE, path)),
        *((config, "num_classes", count) for config, count in callees.items()),
        (corpus_builders.LinuxTokens.BUILDER_CONFIGS[0], "num_classes", 20),
    ]


def _write_place_names(folder):
    path = write_wheel(folder / "places.whl", many_places())
    return [
        (place_names, "WHEEL", pinned(place_names.WHEEL, path)),
        (builders.PlaceNames, "NUM_CLASSES", 40),
    ]


def _write_xmc(folder):
    write_xmc(folder / "xmc" / "Tiny")
    return []


SOURCES = {
    "brown": FakeSource(corpus_builders.Brown, _write_brown, 38, 2),
    "gcide": FakeSource(corpus_builders.Gcide, _write_gcide, 38, 2),
    "linux_callees": FakeSource(corpus_builders.LinuxCallees, _write_linux, 70, 10, "labels"),
    "linux_tokens": FakeSource(corpus_builders.LinuxTokens, _write_linux, 36, 5),
    "place_names": FakeSource(builders.PlaceNames, _write_place_names, 97, 3, "label"),
    "xmc": FakeSource(
        builders.Xmc, _write_xmc, 4, 2, "labels", builders.XmcConfig(name="Tiny", num_labels=6)
    ),
}


def full_name(name):
    config = SOURCES[name].config
    return f"{name}/{config.name}" if config else name


def prepare(name, data_dir):
    """Prepares a dataset from its fake source files, and returns the result of `load`."""
    manual = data_dir / "downloads" / "manual"
    manual.mkdir(parents=True)
    with SOURCES[name].written(manual):
        tfds.load(
            name,
            data_dir=data_dir,
            builder_kwargs={"config": SOURCES[name].config},
            download_and_prepare_kwargs={
                "download_config": tfds.download.DownloadConfig(num_shards=NUM_SHARDS)
            },
        )
        return corpora.load(full_name(name), data_dir=data_dir)
