"""`NapkinxcModel`."""

import numpy as np

from benchmarks.rivals.label_tree_model import LabelTreeModel
from benchmarks.rivals.rival_model import load_package


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
