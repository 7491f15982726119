"""The dataset of a corpus of examples with labels."""

import numpy as np

from tf_largeout.datasets.corpus import Corpus
from tf_largeout.datasets.dataset import Dataset, check_division
from tf_largeout.datasets.pipeline import Pipeline


def examples_dataset(
    name: str,
    corpus: Corpus,
    max_train_labels: int | None,
    *,
    batch_size: int | None,
    shuffle_seed: int | None,
    validation_fraction: float,
) -> Dataset:
    """Creates the dataset of a corpus. The arguments are those of `load`."""
    single_label = bool((corpus.labels.lengths == 1).all())
    train, validation = _split(corpus, validation_fraction, single_label)
    test = np.arange(corpus.num_train, corpus.num_examples)
    pipeline = Pipeline(corpus, single_label)
    all_counts = corpus.label_counts(np.arange(corpus.num_train))
    return Dataset(
        name=name,
        train=pipeline.dataset(train, batch_size, shuffle_seed, max_train_labels),
        test=pipeline.dataset(test, batch_size),
        validation=pipeline.dataset(validation, batch_size) if len(validation) else None,
        num_train=len(train),
        num_test=len(test),
        num_validation=len(validation),
        num_classes=corpus.num_classes,
        num_train_classes=int(np.count_nonzero(all_counts)),
        label_counts=corpus.label_counts(train),
        vocabulary_size=corpus.vocabulary_size,
        max_features=pipeline.max_features,
        corpus=corpus,
    )


def _split(
    corpus: Corpus, fraction: float, single_label: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the int64 indices of the examples of `train` and of `validation`."""
    is_validation = _held_out(corpus, fraction, single_label)
    train, validation = np.flatnonzero(~is_validation), np.flatnonzero(is_validation)
    check_division(len(train), len(validation), fraction, "examples")
    return train, validation


def _held_out(corpus: Corpus, fraction: float, single_label: bool) -> np.ndarray:
    """Returns bool `[num_train]`: which examples of the training split are for validation.

    With single labels, a class keeps at least one training example.
    """
    hashes = corpus.group_hashes[: corpus.num_train]
    result = hashes < np.uint64(int(fraction * 2**64))
    if single_label:
        labels = corpus.labels.values[: corpus.num_train]
        remaining = np.bincount(labels[~result], minlength=corpus.num_classes)
        result &= remaining[labels] > 0
    return result
