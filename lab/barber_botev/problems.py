"""The problems of `lab.barber_botev.likelihood`."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from lab import corpora
from tf_largeout import optimizers
from tf_largeout.layers import LargeOutput


@dataclasses.dataclass(frozen=True)
class Problem:
    """Examples and a model whose likelihood is to be maximised.

    Attributes:
        seed: seed of the data, the initial weights and the order of the examples.
        epochs: number of passes over the examples.
        batch_size: examples per step.
        inputs: `[n, ...]`, the inputs to train on.
        labels: int64 `[n]`.
        looked_at: inputs whose class probabilities are compared.
        labels_looked_at: their labels.
        label_counts: `[num_classes]`, the counts of `labels`.
        learning_rate: rate of exact maximum likelihood; other methods use a grid around it.
        optimizer: function of a learning rate.
        model: function that creates the model for a sampler or None.
        points_per_epoch: number of evaluations in each pass.
        true_log_probabilities: `[looked at, num_classes]` of the model that the labels were
            drawn from, or None.
    """

    seed: int
    epochs: int
    batch_size: int
    inputs: np.ndarray
    labels: np.ndarray
    looked_at: np.ndarray
    labels_looked_at: np.ndarray
    label_counts: np.ndarray
    learning_rate: float
    optimizer: Callable
    model: Callable
    points_per_epoch: int = 1
    true_log_probabilities: Any = None


def toy(seed, epochs, num_classes=1000, dim=100, examples=2000, deviation=3.0):
    """Returns softmax regression on labels drawn from such a model (paper, section 4).

    Args:
        seed: seed of the draw.
        epochs: number of passes over the examples.
        num_classes: number of classes.
        dim: width of the normal inputs.
        examples: number of examples. The first 2,000 are looked at.
        deviation: standard deviation of the true logits.
    """
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=[examples, dim]).astype(np.float32)
    rows = rng.normal(size=[num_classes, dim]) * deviation / np.sqrt(dim)
    parts = [inputs[start : start + 2000] for start in range(0, examples, 2000)]
    labels = np.concatenate([_drawn_labels(part @ rows.T, rng) for part in parts])
    logits = parts[0] @ rows.T
    log_partition = np.log(np.sum(np.exp(logits), axis=1, keepdims=True))

    def model(sampler):
        head = LargeOutput(num_classes, sampler, use_bias=False, embeddings_initializer="zeros")
        return keras.Sequential([keras.Input([dim]), head])

    return Problem(
        seed=seed,
        epochs=epochs,
        batch_size=50,
        inputs=inputs,
        labels=labels,
        looked_at=parts[0],
        labels_looked_at=labels[:2000],
        label_counts=np.bincount(labels, minlength=num_classes),
        learning_rate=0.1,
        optimizer=lambda rate: optimizers.LazySGD(rate, momentum=0.99),
        model=model,
        true_log_probabilities=logits - log_partition,
    )


def toy_large(seed, epochs, examples=200_000, points=5, num_classes=1000):
    """Returns `toy` with so many examples that exact maximum likelihood does not overfit.

    The learning rate falls linearly to 0. Otherwise the noise of the batches would decide how
    near a method comes to the true model.
    """
    problem = toy(seed, epochs, num_classes, examples=examples)
    steps = epochs * examples // problem.batch_size

    def optimizer(rate):
        schedule = keras.optimizers.schedules.PolynomialDecay(rate, steps, 0.0)
        return optimizers.LazySGD(schedule, momentum=0.99)

    changes = {"learning_rate": 0.01, "optimizer": optimizer, "points_per_epoch": points}
    return dataclasses.replace(problem, **changes)


def words(seed, epochs, dim=64, examples=200_000, looked_at=1000, window=2):
    """Returns the word vector problem: a word of brown predicts a word near it (skip-gram).

    Args:
        seed: seed of the drawn pairs.
        epochs: number of passes over the pairs.
        dim: width of the vectors.
        examples: pairs of the training split to train on.
        looked_at: number of pairs of the test split to evaluate on.
        window: maximum distance between the two words.
    """
    data = corpora.load("brown")
    rng = np.random.default_rng(seed)
    inputs, labels = _pairs(data.train_tokens, examples, window, rng)
    test_inputs, test_labels = _pairs(data.test_tokens, looked_at, window, rng)

    def model(sampler):
        vectors = keras.layers.Embedding(data.num_classes, dim)
        return keras.Sequential(
            [keras.Input([], dtype="int32"), vectors, LargeOutput(data.num_classes, sampler)]
        )

    return Problem(
        seed=seed,
        epochs=epochs,
        batch_size=256,
        inputs=inputs,
        labels=labels,
        looked_at=test_inputs,
        labels_looked_at=test_labels,
        label_counts=data.label_counts,
        learning_rate=3e-3,
        optimizer=optimizers.LazyAdam,
        model=model,
    )


def _drawn_labels(logits, rng):
    return np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)


def _pairs(tokens, number, window, rng):
    """Returns random positions of a text, and random other positions near them."""
    places = rng.integers(window, len(tokens) - window, number)
    distances = rng.integers(1, window + 1, number) * rng.choice([-1, 1], number)
    return tokens[places], tokens[places + distances].astype(np.int64)


PROBLEMS: dict[str, Callable] = {
    "toy": toy,
    "toy_large": toy_large,
    "words": words,
    # Figure 1 gives log(C - 1) = 6.2126, which is that of 500 classes.
    "toy_500": functools.partial(toy, num_classes=500),
    "toy_large_500": functools.partial(toy_large, num_classes=500),
}
