"""`FasttextModel`."""

import numpy as np

from benchmarks.rivals.rival_model import RivalModel

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
