"""The problems that methods are compared on; a new one is one line in `TASKS`."""

import collections.abc
import dataclasses

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.benchmarks.encoder import FeatureBag


@dataclasses.dataclass(frozen=True)
class Task:
    """A large classification problem held in memory.

    Attributes:
        name: key in `TASKS`.
        num_classes, num_features: sizes of the output and of the encoder's table;
            `num_features` 0 says that an example is a dense vector already.
        train, test: pairs (features, labels). Features are int32 [n, max_features] padded with
            0, or float32 [n, width]; labels int64 [n] or [n, max_labels] padded with -1.
        label_counts: training examples of each class.
        describe: class id -> text.
        featurize: text -> features [1, max_features], where the input is text.
    """

    name: str
    num_classes: int
    num_features: int
    train: tuple
    test: tuple
    label_counts: np.ndarray
    describe: collections.abc.Callable = str
    featurize: collections.abc.Callable | None = None

    def input(self):
        """Keras input of one example's features."""
        return keras.Input(shape=self.train[0].shape[1:], dtype=self.train[0].dtype.name)

    def encoder(self, dim):
        """The encoder that every method trains on this task."""
        if self.num_features:
            return FeatureBag(self.num_features, dim)
        return keras.layers.Dense(dim)

    def train_batches(self, batch_size, seed=0, first_step=0):
        """Endless shuffled batches; starting at a later step gives the same batches from there."""
        features, labels = (tf.constant(part) for part in self.train)
        steps = max(len(labels) // batch_size, 1)

        def epoch_rows(epoch):
            rows = tf.range(len(labels), dtype=tf.int64)
            rows = tf.random.experimental.stateless_shuffle(rows, seed=[seed, epoch])
            rows = tf.reshape(rows[: steps * batch_size], [steps, -1])
            return tf.data.Dataset.from_tensor_slices(rows)

        def batch(rows):
            return tf.gather(features, rows), tf.gather(labels, rows)

        epochs = tf.data.Dataset.counter(start=first_step // steps)
        batches = epochs.flat_map(epoch_rows).skip(first_step % steps).map(batch)
        return batches.prefetch(4)

    def test_sample(self, size=None, seed=0):
        """A fixed sample of the test split: (features, labels)."""
        features, labels = self.test
        if size is None or size >= len(labels):
            return features, labels
        rows = np.sort(np.random.default_rng(seed).permutation(len(labels))[:size])
        return features[rows], labels[rows]


def synthetic(num_classes=2000, examples=20_000, features_a_class=4, max_labels=1):
    """Each class has features of its own and each example some of them, with noise among them."""
    rng = np.random.default_rng(0)
    num_features = 4 * num_classes
    of_class = rng.integers(1, num_features, size=[num_classes, features_a_class])
    labels = np.floor(num_classes * rng.random([examples, max_labels]) ** 2).astype(np.int64)
    labels[:, 1:][rng.random([examples, max_labels - 1]) < 0.5] = -1
    features = of_class[labels].reshape(examples, -1)
    noise = rng.integers(1, num_features, size=features.shape)
    features = np.where(rng.random(features.shape) < 0.2, noise, features).astype(np.int32)
    if max_labels == 1:
        labels = labels[:, 0]
    split = examples * 9 // 10
    counts = np.bincount(labels[:split][labels[:split] >= 0], minlength=num_classes)
    return Task(
        name="synthetic",
        num_classes=num_classes,
        num_features=num_features,
        train=(features[:split], labels[:split]),
        test=(features[split:], labels[split:]),
        label_counts=counts,
    )


def load(name):
    """Loads the task `name`, or raises a ValueError that lists the tasks there are."""
    if name not in TASKS:
        raise ValueError(f"Unknown task {name!r}. There are: {', '.join(sorted(TASKS))}.")
    return TASKS[name]()


TASKS = {
    "synthetic": synthetic,
    "synthetic_multilabel": lambda: synthetic(max_labels=3),
}
