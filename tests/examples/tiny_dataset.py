"""A dataset like those of `load` that a model learns in a second."""

import numpy as np
import tensorflow as tf

from tf_largeout.datasets.place_names import MAX_FEATURES
from tf_largeout.datasets.place_names import encode as encode_names


def encode(names):
    """Encodes like `place_names.encode`, which it replaces, but with fewer ids."""
    ids = encode_names(names)
    return np.where(ids == 0, 0, 1 + ids % (TinyDataset.vocabulary_size - 1))


class TinyDataset:
    """Names of 5,000 classes, 50 of which occur. Class `c` is "Village c".

    Args:
        several_labels: Whether examples have several labels, as in linux_callees. Examples of
            class `c` then also have class `c + 1`.
    """

    num_classes, num_train, num_test = 5000, 1280, 50
    vocabulary_size, max_features = 5000, MAX_FEATURES
    encode = staticmethod(encode)

    def __init__(self, several_labels=False):
        labels = np.random.default_rng(0).integers(50, size=self.num_train + self.num_test)
        self.texts = [self.class_text(label) for label in labels]
        self.features = self.encode(self.texts)
        self.labels = labels
        if several_labels:
            self.labels = np.stack([labels, labels + 1, np.full_like(labels, -1)], axis=1)
        examples = tf.data.Dataset.from_tensor_slices((self.features, self.labels))
        self.train = examples.take(self.num_train).batch(64)
        self.test = examples.skip(self.num_train).batch(64)
        self.label_counts = np.bincount(labels[: self.num_train], minlength=self.num_classes)

    def class_text(self, class_id):
        return f"Village {class_id}"

    def test_text(self, index):
        return self.texts[self.num_train + index]
