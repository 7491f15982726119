"""`LabelTreeModel`."""

import dataclasses

import numpy as np

from tf_largeout.benchmarks.rivals.rival_model import RivalModel
from tf_largeout.benchmarks.rivals.svmlight import write_svmlight
from tf_largeout.benchmarks.rivals.tf_idf import TfIdf
from tf_largeout.datasets.ragged import Ragged
from tf_largeout.layers import HashedBigrams

_AT_ONCE = 4096


class LabelTreeModel(RivalModel):
    """Base class of label trees, which get TF-IDF weights of feature ids.

    With `pairs_per_id` in the settings, they also get the weights of bigrams of ids, hashed to
    this number of ids per feature id, as `HashedBigrams` does for our models.
    """

    def prepare(self, examples):
        ids, pairs_per_id = examples.num_features, self.settings.get("pairs_per_id", 0)
        self._pairs = HashedBigrams(ids, pairs_per_id * ids) if pairs_per_id else None
        examples = dataclasses.replace(
            examples,
            features=self._with_pairs(examples.features),
            num_features=(1 + pairs_per_id) * ids,
        )
        self._tf_idf = TfIdf(examples.features, examples.num_features)
        write_svmlight(self.train_file, examples, self._tf_idf)

    @property
    def train_file(self):
        """Path of the examples, as text."""
        return str(self.folder / "train.txt")

    @property
    def library_settings(self):
        """The settings that the library knows."""
        return {key: value for key, value in self.settings.items() if key != "pairs_per_id"}

    def weighed(self, features):
        """Rows of `(id, weight)` of int32 features `[n, max_features]`, padded with 0."""
        ids, weights = self._tf_idf.weigh(self._with_pairs(Ragged.from_padded(features, 0)))
        pairs = list(zip(ids.values.tolist(), weights.tolist(), strict=True))
        ends = ids.offsets.tolist()
        return [pairs[start:end] for start, end in zip(ends[:-1], ends[1:], strict=True)]

    def _with_pairs(self, features):
        if self._pairs is None:
            return features
        width, parts = features.lengths.max(), []
        for first in range(0, len(features), _AT_ONCE):
            some = features.take(np.arange(first, min(first + _AT_ONCE, len(features))))
            ids = self._pairs(some.padded(width, 0)).numpy()
            parts.append(Ragged.from_padded(ids, 0))
        return Ragged.joined(parts)
