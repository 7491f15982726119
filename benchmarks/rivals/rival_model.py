"""`RivalModel`."""

import abc
import importlib
import importlib.util
import os
import pathlib


class RivalModel(abc.ABC):
    """A model of another library.

    A subclass sets `package`, the name of the library, and defines the four methods. They are
    called in the order of this file. Only `train` is timed.

    Args:
        settings: dict of settings, by the library's names.
        folder: an empty folder for files, which exists as long as the model.

    Raises:
        ImportError: If the package is not installed. The message says how to install it.
    """

    package: str

    def __init__(self, settings, folder):
        self.settings, self.folder = settings, pathlib.Path(folder)
        self.library = load_package(self.package)
        self.threads = len(os.sched_getaffinity(0))

    @abc.abstractmethod
    def prepare(self, examples):
        """Writes training `Examples` to the file that the library reads."""

    @abc.abstractmethod
    def train(self):
        """Trains on that file."""

    @abc.abstractmethod
    def save(self):
        """Writes the model as needed to answer queries; returns the path."""

    @abc.abstractmethod
    def top_k(self, features, k):
        """Returns the k best classes, int64 `[n, k]`, of int32 features `[n, max_features]`.

        The result is padded with -1 if the library finds fewer than `k` classes.
        """


def load_package(name):
    """Returns the package, or raises an ImportError that names the extra to install."""
    if importlib.util.find_spec(name) is None:
        raise not_installed(name)
    return importlib.import_module(name)


def not_installed(name):
    """Returns the ImportError that names the extra to install."""
    return ImportError(
        f"The package {name} is not installed. To install all packages that the benchmarks "
        'compare with, run: pip install "tf_largeout[rivals]"',
        name=name,
    )
