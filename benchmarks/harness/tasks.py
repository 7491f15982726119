"""The problems on which methods are compared; a new one is one line in `TASKS`."""

import argparse
import dataclasses

import keras
import numpy as np
import tensorflow as tf

from benchmarks.harness.evaluation import examples_of
from lab import corpora
from tf_largeout.datasets import pipeline
from tf_largeout.datasets.dataset import examples_dataset
from tf_largeout.datasets.ragged import Ragged
from tf_largeout.layers import EmbeddingBag

_VALIDATION_FRACTION = 0.02


@dataclasses.dataclass(frozen=True)
class Task:
    """A large classification problem.

    Attributes:
        num_classes: size of the output.
        num_features: rows of the encoder's table; 0 if an example is a dense vector.
        train: endless shuffled batches (features, labels). Features are int32
            [batch, max_features] padded with 0, a dict of such `ids` and float32 `weights`, or
            float32 [batch, width]; labels int64 [batch] or [batch, max_labels] padded with -1.
        test: pair of arrays like a batch, with all test examples.
        label_counts: training examples of each class.
        num_examples: number of all training examples.
    """

    num_classes: int
    num_features: int
    train: tf.data.Dataset
    test: tuple
    label_counts: np.ndarray
    num_examples: int

    def input(self):
        """Returns the Keras input of an example; a dict of two inputs if ids have weights."""
        features, _ = self.train.element_spec
        if isinstance(features, dict):
            return {name: _input(spec, name) for name, spec in features.items()}
        return _input(features)

    def encoder(self, dim):
        """Returns the encoder that every method trains on this task."""
        if self.num_features:
            return EmbeddingBag(self.num_features, dim)
        return keras.layers.Dense(dim)

    def model(self, dim, *layers):
        """Returns the model of the encoder and other layers, applied one after the other."""
        inputs = self.input()
        outputs = self.encoder(dim)(inputs)
        for layer in layers:
            outputs = layer(outputs)
        return keras.Model(inputs, outputs)

    def one_epoch(self):
        """Yields NumPy training batches that contain at least `num_examples` examples."""
        seen = 0
        for features, labels in self.train.as_numpy_iterator():
            yield features, labels
            seen += len(labels)
            if seen >= self.num_examples:
                return

    def test_sample(self, size=None):
        """Returns a fixed sample of the test examples: (features, labels)."""
        features, labels = self.test
        if size is None or size >= len(labels):
            return features, labels
        rows = np.sort(np.random.default_rng(0).permutation(len(labels))[:size])
        return examples_of(features, rows), labels[rows]


def _input(spec, name=None):
    return keras.Input(shape=spec.shape[1:], dtype=spec.dtype.name, name=name)


def load(name, batch_size, seed=0, on_validation=False):
    """Returns the task `name`.

    Args:
        name: key of `TASKS`, or `xmc/NAME` for a dataset in the format of the Extreme
            Classification Repository. `xmc/NAME@COUNT` keeps only the classes with at least
            COUNT training examples, and COUNT examples of each, see `with_equal_counts`.
        batch_size: Size of the training batches.
        seed: Seed of the order of the training examples.
        on_validation: whether to test on a part of the training split instead of the test
            split, to choose settings.

    Raises:
        ValueError: If `name` is unknown. The message lists all tasks.
    """
    if not is_task(name):
        raise ValueError(f"Unknown task {name!r}. There are: {_all_tasks()}.")
    return TASKS.get(name, from_dataset)(name, batch_size, seed, on_validation)


def is_task(name):
    """Returns whether `load` knows the name of a task. The files of `xmc` may be missing."""
    return name in TASKS or name.startswith("xmc/")


def task_argument(name):
    """Checks the name of a task on a command line, and returns it."""
    if not is_task(name):
        raise argparse.ArgumentTypeError(f"expected one of {_all_tasks()}; got {name!r}")
    return name


def _all_tasks():
    return f"{', '.join(sorted(TASKS))}, xmc/NAME, xmc/NAME@COUNT"


def from_dataset(name, batch_size, seed, on_validation):
    """Returns a dataset of the package, or a corpus of the lab, as a task."""
    options = {
        "batch_size": batch_size,
        "shuffle_seed": seed,
        "validation_fraction": _VALIDATION_FRACTION if on_validation else 0.0,
    }
    source, _, count = name.partition("@")
    data = corpora.load(source, **options)
    if count:
        corpus = with_equal_counts(data.corpus, _count_argument(name, count))
        data = examples_dataset(name, corpus, None, **options)
    return Task(
        num_classes=data.num_classes,
        num_features=data.vocabulary_size,
        train=data.train.repeat(),
        test=collect(data.validation if on_validation else data.test),
        label_counts=data.label_counts,
        num_examples=data.num_train,
    )


def _count_argument(name, count):
    try:
        return int(count)
    except ValueError:
        raise ValueError(
            f"Expected a number after @, as in xmc/NAME@10. Got {name!r}."
        ) from None


def synthetic(num_classes=2000, examples=20_000, max_labels=1):
    """Returns a task for tests: each class has four features, and noise hides some of them."""

    def task(name, batch_size, seed, on_validation):
        rng = np.random.default_rng(0)
        num_features = 4 * num_classes
        of_class = rng.integers(1, num_features, size=[num_classes, 4])
        labels = np.floor(num_classes * rng.random([examples, max_labels]) ** 2)
        labels = labels.astype(np.int64)
        features = of_class[labels].reshape(examples, -1)
        noise = rng.integers(1, num_features, size=features.shape)
        features = np.where(rng.random(features.shape) < 0.2, noise, features)
        num_labels = rng.integers(1, max_labels + 1, size=[examples, 1])
        labels[np.arange(max_labels) >= num_labels] = -1
        labels = labels[:, 0] if max_labels == 1 else labels
        return from_arrays(
            features.astype(np.int32), labels, num_features, num_classes, batch_size
        )

    return task


def from_arrays(features, labels, num_features, num_classes, batch_size):
    """Returns a task of examples in memory; the last tenth is the test split."""
    split = len(labels) * 9 // 10
    known = labels[:split][labels[:split] >= 0]
    return Task(
        num_classes=num_classes,
        num_features=num_features,
        train=endless_batches(features[:split], labels[:split], batch_size),
        test=(features[split:], labels[split:]),
        label_counts=np.bincount(known, minlength=num_classes),
        num_examples=split,
    )


def endless_batches(features, labels, batch_size, seed=0):
    """Returns shuffled batches, each gathered from memory in one operation.

    The last batch of an epoch is filled with other examples of the epoch.
    """
    in_epoch = -(-len(labels) // batch_size) * batch_size
    features, labels = tf.constant(features), tf.constant(labels)

    def gather(rows):
        rows = tf.ensure_shape(rows, [batch_size])
        return tf.gather(features, rows), tf.gather(labels, rows)

    examples = np.resize(np.arange(len(labels)), in_epoch)
    return pipeline.batches(examples, batch_size, seed, gather).repeat()


def collect(batches):
    """Returns a finite dataset as (features, labels), padded to one width; labels with -1."""
    features, labels = zip(*batches.as_numpy_iterator(), strict=True)
    features = keras.tree.map_structure(lambda *parts: _concatenated(parts, 0), *features)
    return features, _concatenated(labels, -1)


def _concatenated(parts, padding):
    """Concatenates arrays `[n]`, or `[n, width]` of different widths."""
    if parts[0].ndim == 1:
        return np.concatenate(parts)
    width = max(part.shape[1] for part in parts)
    return np.concatenate(
        [
            np.pad(part, [(0, 0), (0, width - part.shape[1])], constant_values=padding)
            for part in parts
        ]
    )


TASKS = {
    "place_names": from_dataset,
    "linux_callees": from_dataset,
    "linux_callees/constants": from_dataset,
    "linux_callees/fields": from_dataset,
    "synthetic": synthetic(),
    "synthetic_multilabel": synthetic(max_labels=3),
}


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
