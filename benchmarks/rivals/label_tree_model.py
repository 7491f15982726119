"""`LabelTreeModel`."""

from benchmarks.rivals.rival_model import RivalModel
from benchmarks.rivals.svmlight import write_svmlight
from benchmarks.rivals.tf_idf import TfIdf
from tf_largeout.datasets.ragged import Ragged


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
