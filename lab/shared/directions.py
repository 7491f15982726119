"""A synthetic task with nearly uniform labels: noisy copies of random directions."""

import numpy as np
import tensorflow as tf

from benchmarks.harness.tasks import TASKS, Task

_CLASSES, _EXAMPLES, _DIM, _NOISE, _TESTED = 20_000, 60_000, 64, 0.6, 5_000


def add_task():
    """Adds the task to `TASKS`, as "directions"."""
    TASKS["directions"] = _task


def _task(name, batch_size, seed, on_validation):
    """Returns training examples of classes that are directions in space.

    `x = c_y + noise * n`, where c_y is the unit vector of the class, and n is a normal vector
    of mean squared length 1. The classes of examples are uniform. The test examples are
    training examples: with three examples per class, a model can only memorize them.
    """
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((_CLASSES, _DIM))
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    labels = rng.integers(0, _CLASSES, _EXAMPLES)
    noise = rng.standard_normal((_EXAMPLES, _DIM)) / np.sqrt(_DIM)
    features = (centers[labels] + _NOISE * noise).astype(np.float32)
    train = tf.data.Dataset.from_tensor_slices((features, labels))
    return Task(
        num_classes=_CLASSES,
        num_features=0,
        train=train.shuffle(_EXAMPLES, seed=seed).repeat().batch(batch_size),
        test=(features[:_TESTED], labels[:_TESTED]),
        label_counts=np.bincount(labels, minlength=_CLASSES),
        num_examples=_EXAMPLES,
    )
