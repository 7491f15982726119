"""`TfIdf`."""

import numpy as np

from tf_largeout.datasets.ragged import Ragged


class TfIdf:
    """TF-IDF weights of feature ids: count in the example, times log(N / examples with the id).

    The weights of an example are divided by their length.

    Args:
        features: `Ragged` ids of the N training examples. Other ids have weight 0.
        num_features: upper bound of the ids, not included.
    """

    def __init__(self, features, num_features):
        self.num_features = num_features
        keys, _ = self._counted(features)
        rows_with = np.bincount(keys % num_features, minlength=num_features)
        rareness = np.log(len(features) / np.maximum(rows_with, 1))
        self._rareness = np.where(rows_with, rareness, 0.0)

    def weigh(self, features):
        """Returns the sorted distinct ids of each example as a `Ragged`, and their weights."""
        keys, counts = self._counted(features)
        rows, ids = np.divmod(keys, self.num_features)
        weights = counts * self._rareness[ids]
        squares = np.bincount(rows, weights**2, minlength=len(features))
        weights /= np.sqrt(np.maximum(squares, 1e-12))[rows]
        return Ragged.from_lengths(ids, np.bincount(rows, minlength=len(features))), weights

    def _counted(self, features):
        """Returns the distinct `row * num_features + id`, and the count of each."""
        rows = np.repeat(np.arange(len(features), dtype=np.int64), features.lengths)
        return np.unique(rows * self.num_features + features.values, return_counts=True)
