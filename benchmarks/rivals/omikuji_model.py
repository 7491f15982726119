"""`OmikujiModel`."""

import numpy as np

from benchmarks.harness.files import silent
from benchmarks.rivals.label_tree_model import LabelTreeModel


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
