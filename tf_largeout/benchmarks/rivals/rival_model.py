"""`RivalModel`."""

import abc
import importlib
import importlib.util
import os
import pathlib


class RivalModel(abc.ABC):
    """A model of another library: one call to train it, one to ask it.

    A subclass names its `package` and writes the four methods, which are called in the order
    they stand here. Only `train` is timed.

    Args:
        settings: dict of the library's own names.
        folder: an empty one for files, which lives as long as the model.

    Raises:
        ImportError: the package is not installed; the message says how to get it.
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
        """int64 `[n, k]` best classes of int32 features `[n, max_features]`, padded with 0.

        The classes are padded with -1, where the library finds fewer than `k`.
        """


def load_package(name):
    """The package, or an ImportError that names the extra that has it."""
    if importlib.util.find_spec(name) is None:
        raise ImportError(
            f"The package {name} is not installed. Get it, and the other rivals of the "
            'benchmarks, by: pip install "tf_largeout[rivals]"',
            name=name,
        )
    return importlib.import_module(name)
