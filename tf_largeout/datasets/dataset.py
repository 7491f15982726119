"""What `load` returns."""

import dataclasses
import operator
from typing import SupportsIndex

import numpy as np
import tensorflow as tf

from tf_largeout.datasets.corpus import Corpus
from tf_largeout.datasets.token_corpus import TokenCorpus


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A dataset that is ready for `fit` and `evaluate`.

    The pipelines give `(features, labels)`. Features are int32 `[batch_size, max_features]`,
    ids of rows of an embedding table, padded with 0 (where features have weights: a dict of
    `ids` and float32 `weights` of that shape). Labels are int64 `[batch_size]`, or where an
    example may have several `[batch_size, most labels of the batch]` padded with -1.

    Attributes:
        name: as given to `load`.
        train: shuffled anew in each epoch, in the same way in each run.
        test: in fixed order.
        validation: part of the training split, not in `train`; None where none was asked for.
        num_train: examples in `train`.
        num_test: examples in `test`.
        num_validation: examples in `validation`.
        num_classes: classes are `0 ... num_classes - 1`, by falling count in the training
            split.
        num_train_classes: the classes below this id occur in the training split, the others
            only in the test split, where they count as misses of every model.
        label_counts: int64 `[num_classes]`, how often each class labels an example of `train`.
        vocabulary_size: rows of the feature table, padding included.
        max_features: width of the features.
        corpus: the parsed data behind it all: `corpus.example_texts[i]` and so on.
    """

    name: str
    train: tf.data.Dataset
    test: tf.data.Dataset
    validation: tf.data.Dataset | None
    num_train: int
    num_test: int
    num_validation: int
    num_classes: int
    num_train_classes: int
    label_counts: np.ndarray
    vocabulary_size: int
    max_features: int
    corpus: Corpus | TokenCorpus = dataclasses.field(repr=False)

    def class_text(self, class_id: SupportsIndex) -> str:
        """One line that shows a class to people.

        Args:
            class_id: integer in `[0, num_classes)`.

        Raises:
            IndexError: there is no such class.
            TypeError: `class_id` is no integer.
        """
        return self.corpus.class_texts[checked_place("class_id", class_id, self.num_classes)]

    def test_text(self, index: SupportsIndex) -> str:
        """One line that shows an example of `test` to people.

        Args:
            index: place of the example in `test`, an integer in `[0, num_test)`.

        Raises:
            IndexError: `test` has no such example.
            TypeError: `index` is no integer.
        """
        row = checked_place("index", index, self.num_test)
        return self.corpus.example_texts[self.corpus.num_train + row]


def check_division(num_train: int, num_validation: int, fraction: float, what: str) -> None:
    """Raises a `ValueError` if `validation_fraction` leaves a side without any of `what`."""
    if fraction and not (num_train and num_validation):
        raise ValueError(
            f"Of {num_train + num_validation:,} training {what} `validation_fraction` leaves "
            f"{num_train:,} to train on and {num_validation:,} to validate on; neither may "
            f"be 0. Received: validation_fraction={fraction}."
        )


def checked_place(name: str, value: SupportsIndex, below: int) -> int:
    """The argument `name`, an integer of Python's, numpy's or TensorFlow's, as an int."""
    try:
        place = operator.index(value)
    except TypeError:
        raise TypeError(
            f"`{name}` must be an integer. Received: {name}={value!r} (of type "
            f"{type(value).__name__})."
        ) from None
    if not 0 <= place < below:
        raise IndexError(f"Expected 0 <= {name} < {below}. Received: {name}={value!r}.")
    return place
