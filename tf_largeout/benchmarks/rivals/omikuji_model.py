"""`OmikujiModel`."""

import numpy as np

from tf_largeout.benchmarks.files import silent
from tf_largeout.benchmarks.rivals.rival_model import RivalModel
from tf_largeout.benchmarks.rivals.svmlight import write_svmlight
from tf_largeout.benchmarks.rivals.tf_idf import TfIdf
from tf_largeout.datasets.ragged import Ragged


class OmikujiModel(RivalModel):
    """Omikuji: label trees of clustered classes with linear models, as Parabel and Bonsai.

    Settings are the fields of `omikuji.Model.default_hyper_param()`, and `beam_size` of a
    prediction, 10 by default.

    Reference:
        Prabhu et al. 2018, "Parabel"; Khandagale et al. 2019, "Bonsai".
    """

    package = "omikuji"

    def prepare(self, examples):
        self._tf_idf = TfIdf(examples.features, examples.num_features)
        write_svmlight(self.folder / "train.txt", examples, self._tf_idf)

    def train(self):
        parameters = self.library.Model.default_hyper_param()
        for name, value in self.settings.items():
            if name != "beam_size":
                setattr(parameters, name, value)
        with silent():  # it writes a line for each example
            self._model = self.library.Model.train_on_data(
                str(self.folder / "train.txt"), parameters, self.threads
            )

    def save(self):
        path = self.folder / "model"
        with silent():
            self._model.save(str(path))
        return path

    def top_k(self, features, k):
        ids, weights = self._tf_idf.weigh(Ragged.from_padded(features, 0))
        beam_size = self.settings.get("beam_size", 10)
        found = np.full([len(features), k], -1, np.int64)
        for row, (start, end) in enumerate(zip(ids.offsets, ids.offsets[1:], strict=False)):
            pairs = list(
                zip(ids.values[start:end].tolist(), weights[start:end].tolist(), strict=True)
            )
            best = self._model.predict(pairs, beam_size, k)
            found[row, : len(best)] = [label for label, _ in best]
        return found
