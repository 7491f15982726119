"""The result of `load`."""

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

    The pipelines yield `(features, labels)`:

    * Features are int32 `[batch_size, max_features]`, row ids of an embedding table, padded
      with 0. If features have weights, they are a dict of `ids` and float32 `weights`, both of
      this shape.
    * Labels are int64 `[batch_size]`. If examples may have several labels, they are
      `[batch_size, max_labels]`, padded with -1, where `max_labels` is the largest number of
      labels of an example in the batch.

    Attributes:
        name: As passed to `load`.
        train: Shuffled differently in each epoch, in the same way in each run.
        test: In fixed order.
        validation: Part of the training split that is not in `train`; None if not requested.
        num_train: Number of examples in `train`.
        num_test: Number of examples in `test`.
        num_validation: Number of examples in `validation`.
        num_classes: Number of classes. Ids are in descending order of counts in the training
            split.
        num_train_classes: Number of classes in the training split, which have the lowest ids.
            The others occur in the test split only, so every model misses them.
        label_counts: int64 `[num_classes]`, how often each class labels an example of `train`.
        vocabulary_size: Number of rows of the feature table, including padding.
        max_features: Width of the features.
        corpus: The parsed data, with `corpus.example_texts[i]` and others.
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
        """Returns one readable line that describes a class.

        Args:
            class_id: Integer in `[0, num_classes)`.

        Raises:
            IndexError: If `class_id` is out of range.
            TypeError: If `class_id` is not an integer.
        """
        return self.corpus.class_texts[checked_index("class_id", class_id, self.num_classes)]

    def test_text(self, index: SupportsIndex) -> str:
        """Returns one readable line that describes an example of `test`.

        Args:
            index: Position of the example in `test`, an integer in `[0, num_test)`.

        Raises:
            IndexError: If `index` is out of range.
            TypeError: If `index` is not an integer.
        """
        position = checked_index("index", index, self.num_test)
        return self.corpus.example_texts[self.corpus.num_train + position]


def check_division(num_train: int, num_validation: int, fraction: float, what: str) -> None:
    """Raises a `ValueError` if `validation_fraction` leaves `train` or `validation` empty.

    Args:
        num_train: Number of items in `train`.
        num_validation: Number of items in `validation`.
        fraction: `validation_fraction`.
        what: Name of the items, for the message.
    """
    if fraction and not (num_train and num_validation):
        raise ValueError(
            "`validation_fraction` must leave data for training and for validation. It divides "
            f"{num_train + num_validation:,} training {what} into {num_train:,} for training "
            f"and {num_validation:,} for validation. Received: validation_fraction={fraction}."
        )


def checked_index(name: str, value: SupportsIndex, below: int) -> int:
    """Returns an argument as an int in `[0, below)`, or raises a TypeError or an IndexError.

    Args:
        name: Name of the argument, for the messages.
        value: A Python, NumPy or TensorFlow integer.
        below: Upper limit, not included.
    """
    try:
        index = operator.index(value)
    except TypeError:
        raise TypeError(
            f"`{name}` must be an integer. Received: {name}={value!r} (of type "
            f"{type(value).__name__})."
        ) from None
    if not 0 <= index < below:
        raise IndexError(f"Expected 0 <= {name} < {below}. Received: {name}={value!r}.")
    return index
