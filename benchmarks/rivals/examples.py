"""Training examples for other libraries: rows of ids, TF-IDF weights, and text files."""

import dataclasses

import numpy as np

from tf_largeout.datasets.ragged import Ragged


@dataclasses.dataclass(frozen=True)
class Examples:
    """All training examples of a task as rows of ids, for other libraries.

    Attributes:
        features: Rows of feature ids above 0; an id may occur twice.
        labels: Rows of classes.
        num_features: Upper bound of the feature ids, not included.
        num_classes: Number of classes.
    """

    features: Ragged
    labels: Ragged
    num_features: int
    num_classes: int

    @classmethod
    def of_task(cls, task):
        """Returns the examples of a `Task`.

        Raises:
            ValueError: If the examples of the task are dense vectors, or ids with weights.
        """
        if not task.num_features or isinstance(task.train.element_spec[0], dict):
            raise ValueError(
                "Other libraries are trained on feature ids without weights; the examples of "
                "this task are dense vectors, or their ids have weights. Take another task."
            )
        parts = [
            (Ragged.from_padded(ids, 0), Ragged.from_padded(labels.reshape(len(ids), -1), -1))
            for ids, labels in task.one_epoch()
        ]
        features, labels = zip(*parts, strict=True)
        sizes = task.num_features, task.num_classes
        return cls(Ragged.joined(features), Ragged.joined(labels), *sizes)


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


def write_svmlight(path, examples, tf_idf):
    """Writes `Examples` with the weights of a `TfIdf`, and the header `N D L`."""
    ids, weights = tf_idf.weigh(examples.features)
    sizes = len(ids), examples.num_features, examples.num_classes
    with open(path, "w") as file:
        file.write(" ".join(map(str, sizes)) + "\n")
        for row, (start, end) in enumerate(zip(ids.offsets[:-1], ids.offsets[1:], strict=True)):
            pairs = zip(
                ids.values[start:end].tolist(), weights[start:end].tolist(), strict=True
            )
            labels = ",".join(map(str, examples.labels.row(row).tolist()))
            file.write(" ".join([labels, *(f"{i}:{w:.5g}" for i, w in pairs)]) + "\n")
