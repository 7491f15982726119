"""Models of other libraries."""

import abc
import dataclasses
import importlib
import importlib.util
import os
import pathlib

import numpy as np

from benchmarks.harness.files import silent
from benchmarks.rivals.examples import TfIdf, write_svmlight
from tf_largeout.datasets.ragged import Ragged


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


@dataclasses.dataclass(frozen=True)
class Rival:
    """One row of the table.

    Attributes:
        title: name in tables and figures.
        model: subclass of `RivalModel`.
        settings: settings of the model that differ from its library's defaults.
        tuned: such settings by task, found on a part of the training examples.
    """

    title: str
    model: type[RivalModel]
    settings: dict = dataclasses.field(default_factory=dict)
    tuned: dict = dataclasses.field(default_factory=dict)

    def settings_for(self, task_name, **overrides):
        """Returns the settings on a task: those of the method, the task and the caller."""
        return {**self.settings, **self.tuned.get(task_name, {}), **overrides}


class LabelTreeModel(RivalModel):
    """Base class of label trees, which get TF-IDF weights of feature ids."""

    def prepare(self, examples):
        self._tf_idf = TfIdf(examples.features, examples.num_features)
        write_svmlight(self.train_file, examples, self._tf_idf)

    @property
    def train_file(self):
        """Path of the examples, as text."""
        return str(self.folder / "train.txt")

    def weighed(self, features):
        """Returns a list of `(id, weight)` per row of int32 features `[n, max_features]`."""
        ids, weights = self._tf_idf.weigh(Ragged.from_padded(features, 0))
        pairs = list(zip(ids.values.tolist(), weights.tolist(), strict=True))
        ends = ids.offsets.tolist()
        return [pairs[start:end] for start, end in zip(ends[:-1], ends[1:], strict=True)]


_LABEL = "__label__"


class FasttextModel(RivalModel):
    """fastText: a linear output on the mean of word vectors, with feature ids as words.

    Settings are arguments of `fasttext.train_supervised`.

    Reference:
        Joulin et al. 2017, "Bag of tricks for efficient text classification".
    """

    package = "fasttext"

    def prepare(self, examples):
        with open(self.folder / "train.txt", "w") as file:
            for row in range(len(examples.features)):
                labels = [f"{_LABEL}{label}" for label in examples.labels.row(row).tolist()]
                words = map(str, examples.features.row(row).tolist())
                file.write(" ".join([*labels, *words]) + "\n")

    def train(self):
        self._model = self.library.train_supervised(
            str(self.folder / "train.txt"), thread=self.threads, verbose=0, **self.settings
        )

    def save(self):
        path = self.folder / "model.bin"
        self._model.save_model(str(path))
        return path

    def top_k(self, features, k):
        lines = [" ".join(map(str, row[row > 0].tolist())) for row in features]
        found = np.full([len(features), k], -1, np.int64)
        for row, best in enumerate(self._model.predict(lines, k)[0]):
            found[row, : len(best)] = [int(label.removeprefix(_LABEL)) for label in best]
        return found


class NapkinxcModel(LabelTreeModel):
    """napkinXC: a probabilistic label tree of logistic models.

    Settings are arguments of `napkinxc.models.PLT`.

    Reference:
        Jasinska-Kobus et al. 2020, "Probabilistic label trees for extreme multi-label
        classification".
    """

    package = "napkinxc"

    def train(self):
        models = load_package("napkinxc.models")
        self._model = models.PLT(
            str(self.folder / "model"), threads=self.threads, seed=0, **self.settings
        )
        self._model.fit_on_file(self.train_file)

    def save(self):
        self._model.load()  # `fit_on_file` has written it, and keeps nothing in memory
        return self.folder / "model"

    def top_k(self, features, k):
        found = np.full([len(features), k], -1, np.int64)
        for row, best in enumerate(self._model.predict(self.weighed(features), top_k=k)):
            found[row, : len(best)] = best
        return found


class OmikujiModel(LabelTreeModel):
    """Omikuji: label trees of clustered classes with linear models, as Parabel and Bonsai.

    Settings are the fields of `omikuji.Model.default_hyper_param()`, and `beam_size` of a
    prediction, 10 by default.

    Reference:
        Prabhu et al. 2018, "Parabel"; Khandagale et al. 2019, "Bonsai".
    """

    package = "omikuji"

    def train(self):
        parameters = self.library.Model.default_hyper_param()
        for name, value in self.settings.items():
            if name != "beam_size":
                setattr(parameters, name, value)
        with silent():  # it writes a line for each example
            self._model = self.library.Model.train_on_data(
                self.train_file, parameters, self.threads
            )

    def save(self):
        path = self.folder / "model"
        with silent():
            self._model.save(str(path))
        return path

    def top_k(self, features, k):
        beam_size = self.settings.get("beam_size", 10)
        found = np.full([len(features), k], -1, np.int64)
        for row, pairs in enumerate(self.weighed(features)):
            best = self._model.predict(pairs, beam_size, k)
            found[row, : len(best)] = [label for label, _ in best]
        return found
