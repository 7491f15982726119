"""The parsed form of the datasets with examples and labels."""

import dataclasses

import numpy as np

from tf_largeout.datasets.ragged import Ragged
from tf_largeout.datasets.storable import Storable
from tf_largeout.datasets.text_table import TextTable


@dataclasses.dataclass(frozen=True)
class Corpus(Storable):
    """All examples of a dataset as flat arrays: the training split first, then the test split.

    Class ids are in descending order of training counts. Class 0 is the most frequent one, as a
    log-uniform sampler expects. Classes without training examples come last.

    Attributes:
        features: One row of int32 ids per example. Ids are `1 ... vocabulary_size - 1`; 0 is
            reserved for padding.
        labels: One row of class ids per example.
        feature_weights: float32, one per id in `features`, or None if all weights are 1.
        example_texts: One readable line per example.
        class_texts: One readable line per class.
        group_hashes: uint64 `[num_examples]`, a hash of the group that must stay in one split
            (the name itself, or the source file).
        num_train: Number of examples in the training split.
        vocabulary_size: Number of rows of the feature table, including padding.
    """

    features: Ragged
    labels: Ragged
    example_texts: TextTable
    class_texts: TextTable
    group_hashes: np.ndarray
    num_train: int
    vocabulary_size: int
    feature_weights: np.ndarray | None = None

    @property
    def num_examples(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        return len(self.class_texts)

    @property
    def ragged_weights(self) -> Ragged | None:
        """`feature_weights`, split into rows as `features` is; None if all weights are 1."""
        if self.feature_weights is None:
            return None
        return Ragged(self.feature_weights, self.features.offsets)

    def label_counts(self, examples: np.ndarray) -> np.ndarray:
        """Returns int64 `[num_classes]`, how often each class labels the given examples."""
        return np.bincount(self.labels.take(examples).values, minlength=self.num_classes)
