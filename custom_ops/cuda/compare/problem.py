"""The inputs of the compared steps: the same numbers for everyone."""

import dataclasses
import functools

import numpy as np


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of all steps, as the command line names them."""

    classes: int
    dim: int
    batch: int
    sampled: int
    exact_batch: int
    top_k: int
    block: int


@dataclasses.dataclass(frozen=True)
class Adam:
    """The hyperparameters of the update, whose step is the first.

    Epsilon is so small that it does not matter that the sparse and the dense Adam of
    PyTorch add it in different places.
    """

    rate: float = 0.01
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-12

    @property
    def step_size(self) -> float:
        """The learning rate with the bias corrections of the first step."""
        return float(self.rate * np.sqrt(1 - self.beta_2) / (1 - self.beta_1))


@dataclasses.dataclass(frozen=True)
class SampledProblem:
    """A step of sampled softmax whose negatives the batch shares, and of a row-sparse Adam.

    loss = mean over b of -log(e^t_b / (e^t_b + sum over j of e^n_bj)), t_b = <h_b, w_label> +
    true_offsets[b], n_bj = <h_b, w_sampled[j]> + offsets[j]; j leaves the sum where it is
    the label.
    """

    embeddings: np.ndarray  # [classes, dim], float32, and so are the slots of Adam
    momentum: np.ndarray
    velocity: np.ndarray
    features: np.ndarray  # [batch, dim], float32
    labels: np.ndarray  # [batch], int64
    sampled: np.ndarray  # [sampled], int64, distinct
    true_offsets: np.ndarray  # [batch], float32: -log of the expected counts
    offsets: np.ndarray  # [sampled], float32
    adam: Adam = Adam()

    @functools.cached_property
    def touched(self) -> np.ndarray:
        """The classes that the step updates, rising."""
        return np.unique(np.concatenate([self.labels, self.sampled]))

    def changes(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Splits what an update did to the rows of `touched`: of labels, and of the others."""
        change = rows.astype(np.float64) - self.embeddings[self.touched]
        is_label = np.isin(self.touched, self.labels)
        return {"label rows": change[is_label], "negative rows": change[~is_label]}


@dataclasses.dataclass(frozen=True)
class ClassProblem:
    """A pass over all classes: the exact softmax loss, or the k best classes."""

    embeddings: np.ndarray  # [classes, dim], float32
    features: np.ndarray  # [batch, dim], float32
    labels: np.ndarray  # [batch], int64
    top_k: int
    block: int  # how many classes others may take at a time


def sampled_problem(sizes: Sizes, seed: int) -> SampledProblem:
    """Returns labels and distinct negatives of a log-uniform law, and normal values."""
    random = np.random.default_rng(seed)
    embeddings = _embeddings(random, sizes)
    # As large as slots are for gradients of a mean over the batch.
    shape = embeddings.shape
    momentum = random.standard_normal(shape, np.float32) * np.float32(0.01 / sizes.batch)
    velocity = random.random(shape, np.float32) + np.float32(0.5)
    velocity *= np.float32((0.1 / sizes.batch) ** 2)
    labels = _log_uniform(random, sizes.batch, sizes.classes)
    sampled, tries = _distinct(random, sizes.sampled, sizes.classes)
    true_offsets, offsets = (
        -np.log(_expected_counts(ids, tries, sizes.classes)).astype(np.float32)
        for ids in (labels, sampled)
    )
    features = random.standard_normal((sizes.batch, sizes.dim), np.float32)
    return SampledProblem(
        embeddings, momentum, velocity, features, labels, sampled, true_offsets, offsets
    )


def class_problem(sizes: Sizes, seed: int) -> ClassProblem:
    """Returns labels of a log-uniform law, and normal values."""
    random = np.random.default_rng(seed)
    embeddings = _embeddings(random, sizes)
    features = random.standard_normal((sizes.exact_batch, sizes.dim), np.float32)
    labels = _log_uniform(random, sizes.exact_batch, sizes.classes)
    return ClassProblem(embeddings, features, labels, sizes.top_k, sizes.block)


def _embeddings(random: np.random.Generator, sizes: Sizes) -> np.ndarray:
    """Rows whose logits have a variance of 1."""
    values = random.standard_normal((sizes.classes, sizes.dim), np.float32)
    values *= np.float32(sizes.dim**-0.5)
    return values


def _log_uniform(random: np.random.Generator, count: int, classes: int) -> np.ndarray:
    drawn = np.floor(np.exp(random.random(count) * np.log(classes + 1))).astype(np.int64) - 1
    return np.clip(drawn, 0, classes - 1)


def _distinct(random: np.random.Generator, count: int, classes: int) -> tuple[np.ndarray, int]:
    """The first `count` distinct draws, and how many draws that took."""
    drawn = np.empty(0, np.int64)
    while True:
        drawn = np.concatenate([drawn, _log_uniform(random, 4 * count, classes)])
        first = np.sort(np.unique(drawn, return_index=True)[1])
        if len(first) >= count:
            return drawn[first[:count]], int(first[count - 1]) + 1


def _expected_counts(ids: np.ndarray, tries: int, classes: int) -> np.ndarray:
    probability = np.log((ids + 2.0) / (ids + 1.0)) / np.log(classes + 1.0)
    return -np.expm1(tries * np.log1p(-probability))
