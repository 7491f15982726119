"""A synthetic problem with nearly uniform labels: noisy copies of random directions."""

import numpy as np


def directions(num_classes=20_000, examples=60_000, dim=64, noise=0.6, test_examples=5_000):
    """Training examples of classes that are directions in space.

    `x = c_y + noise * n`, where c_y is the unit vector of the class, and n is a normal vector
    of mean squared length 1. The test examples are training examples: with three examples per
    class, a model can only memorize them.

    Args:
        num_classes: number of directions.
        examples: number of training examples, with uniform classes.
        dim: width of the examples.
        noise: length of the noise, relative to a direction of length 1.
        test_examples: number of training examples that are also test examples.

    Returns:
        `((features, labels), (test_features, test_labels))`: float32 and int64 arrays.
    """
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((num_classes, dim))
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    labels = rng.integers(0, num_classes, examples)
    noise_vectors = rng.standard_normal((examples, dim)) / np.sqrt(dim)
    features = (centers[labels] + noise * noise_vectors).astype(np.float32)
    train = (features, labels)
    return train, (features[:test_examples], labels[:test_examples])
