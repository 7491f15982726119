"""`with_equal_counts`: a variant of a corpus whose classes are equally frequent."""

import dataclasses

import numpy as np

from tf_largeout.datasets.ragged import Ragged


def with_equal_counts(corpus, count):
    """Returns a `Corpus` in which each class labels `count` training examples.

    Classes with fewer training examples are removed. Of the others, `count` labels drawn at
    random are kept, the same in each call. Test examples keep their labels of these classes.
    Examples without labels are removed. Daghaghi et al. 2021 (section 3.5) compare samplers on
    such a variant of Amazon-670K with 158,000 classes, made "by down sampling frequent
    classes"; the paper does not give the details.

    Args:
        corpus: A `Corpus`.
        count: Training examples of each class, at least 1.

    Raises:
        ValueError: If no class has `count` training examples, or no test example is left.
    """
    split = corpus.labels.offsets[corpus.num_train]
    values = corpus.labels.values
    counts = np.bincount(values[:split], minlength=corpus.num_classes)
    most = counts.max(initial=0)
    if not 1 <= count <= most:
        raise ValueError(
            f"Expected `count` from 1 to {most}, the number of training examples of the most "
            f"frequent class. Received: count={count}."
        )
    kept_class = counts >= count
    kept = kept_class[values]
    kept[:split] &= _times_before(values[:split]) < count
    labels = corpus.labels.filtered(kept)
    examples = np.flatnonzero(labels.lengths)
    num_train = int(np.count_nonzero(examples < corpus.num_train))
    if num_train == len(examples):
        raise ValueError(
            f"No test example has a class with {count} training examples. Use a lower count."
        )
    new_ids = np.cumsum(kept_class) - 1
    labels = labels.take(examples)
    weights = corpus.ragged_weights
    return dataclasses.replace(
        corpus,
        features=corpus.features.take(examples),
        feature_weights=None if weights is None else weights.take(examples).values,
        labels=Ragged(new_ids[labels.values].astype(values.dtype), labels.offsets),
        example_texts=corpus.example_texts.take(examples),
        class_texts=corpus.class_texts.take(np.flatnonzero(kept_class)),
        group_hashes=corpus.group_hashes[examples],
        num_train=num_train,
    )


def _times_before(values):
    """Returns how often each value occurs before, in a random order of the positions."""
    order = np.random.default_rng(0).permutation(len(values))
    by_value = order[np.argsort(values[order], kind="stable")]
    ascending = values[by_value]
    result = np.empty(len(values), np.int64)
    result[by_value] = np.arange(len(values)) - np.searchsorted(ascending, ascending)
    return result
