"""A dense and a factored output layer with the same initial weights, and random batches."""

import numpy as np
import pytest

from tests.reference.factored_output import (
    DenseLayer,
    FactoredLayer,
    with_labels,
    with_values,
)
from tests.reference.spherical_losses import LOSSES

DIM, NUM_CLASSES = 16, 97
LEARNING_RATE = {
    "squared_error": 0.02,
    "spherical_softmax": 0.05,
    "taylor_softmax": 0.2,
    "z_loss": 0.1,
}
each_loss = pytest.mark.parametrize("name", LOSSES)


class Problem:
    """Both layers with the same initial weights, and random batches for them."""

    def __init__(self, name, dim=DIM, num_classes=NUM_CLASSES, bias=True, seed=0, scale=1.0):
        self.random = np.random.default_rng(seed)
        self.dim, self.num_classes = dim, num_classes
        kernel = scale * self.random.normal(size=[num_classes, dim]) / np.sqrt(dim)
        bias = scale * self.random.normal(size=num_classes) if bias else None
        loss = LOSSES[name](num_classes)
        self.dense = DenseLayer(kernel, bias, loss)
        self.factored = FactoredLayer(kernel, bias, loss)
        self.learning_rate = LEARNING_RATE[name] * DIM / max(dim, DIM)

    def features(self, size):
        return self.random.normal(size=[size, self.dim])

    def labelled(self, size):
        """Returns up to three labels per example, half of few classes. Some weights are 0."""
        labels = self.random.integers(-1, self.num_classes, [size, 3])
        few = self.random.integers(-1, min(4, self.num_classes), [size, 3])
        labels = np.where(self.random.random([size, 3]) < 0.5, labels, few)
        weights = self.random.random(size) * (self.random.random(size) < 0.67) * 2
        return with_labels(self.features(size), labels, weights)

    def valued(self, size):
        ids = self.random.integers(-1, self.num_classes, [size, 4])
        return with_values(self.features(size), ids, self.random.normal(size=[size, 4]))

    def step(self, batch):
        """Makes one step with both layers, and compares the results."""
        dense = self.dense.step(batch, self.learning_rate)
        factored = self.factored.step(batch, self.learning_rate)
        for one, other in zip(dense, factored, strict=True):
            assert_equal(other, one)

    def train(self, steps, batch):
        """Makes many steps. Stabilises U, as the error grows with its condition number."""
        for step in range(steps):
            self.step(batch())
            if step % 5 == 4:
                self.factored.stabilise()

    def check_equal(self):
        assert_equal(self.factored.class_embeddings(), self.dense.kernel)
        if self.dense.bias is None:
            assert self.factored.bias() is None
        else:
            assert_equal(self.factored.bias(), self.dense.bias)
        assert max(self.factored.drift().values()) < 1e-9


def assert_equal(found, expected, tolerance=1e-9):
    """Compares with a tolerance relative to the largest number, or to 1 if that is larger."""
    scale = max(1.0, np.abs(expected).max(initial=0))
    assert np.shape(found) == np.shape(expected)
    error = np.abs(found - expected).max(initial=0)
    assert error <= tolerance * scale, f"{error} of {scale}"


def differences(function, x, step=1e-6):
    """Returns the derivative of the sum of `function(x)` for each element of `x`."""
    result = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        moved = np.zeros_like(x)
        moved[index] = step
        result[index] = (function(x + moved) - function(x - moved)).sum() / (2 * step)
    return result
