"""`NapkinxcModel`."""

import numpy as np

from tf_largeout.benchmarks.rivals.rival_model import RivalModel, load_package
from tf_largeout.benchmarks.rivals.svmlight import write_svmlight
from tf_largeout.benchmarks.rivals.tf_idf import TfIdf
from tf_largeout.datasets.ragged import Ragged


class NapkinxcModel(RivalModel):
    """napkinXC: a probabilistic label tree of logistic models.

    Settings are arguments of `napkinxc.models.PLT`.

    Reference:
        Jasinska-Kobus et al. 2020, "Probabilistic label trees for extreme multi-label
        classification".
    """

    package = "napkinxc"

    def __init__(self, settings, folder):
        super().__init__(settings, folder)
        self._models = load_package("napkinxc.models")

    def prepare(self, examples):
        self._tf_idf = TfIdf(examples.features, examples.num_features)
        write_svmlight(self.folder / "train.txt", examples, self._tf_idf)

    def train(self):
        self._model = self._models.PLT(
            str(self.folder / "model"), threads=self.threads, seed=0, **self.settings
        )
        self._model.fit_on_file(str(self.folder / "train.txt"))

    def save(self):
        self._model.load()  # `fit_on_file` wrote it, and kept nothing in memory
        return self.folder / "model"

    def top_k(self, features, k):
        ids, weights = self._tf_idf.weigh(Ragged.from_padded(features, 0))
        pairs = list(zip(ids.values.tolist(), weights.tolist(), strict=True))
        rows = [
            pairs[start:end] for start, end in zip(ids.offsets, ids.offsets[1:], strict=False)
        ]
        found = np.full([len(features), k], -1, np.int64)
        for row, best in enumerate(self._model.predict(rows, top_k=k)):
            found[row, : len(best)] = best
        return found
