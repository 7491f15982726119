"""A table of losses with their oracles, and a problem to compare them."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from tests import harness, low_precision
from tests.reference import losses as reference
from tf_largeout import losses

N, DIM, BATCH, SAMPLED = 37, 5, 6, 11


class Case(NamedTuple):
    loss: Any
    oracle: Any  # (features, embeddings, bias, labels, sampled, true count, sampled count)
    exact: Any = reference.full_softmax  # The value that `evaluate` reports: (..., labels)


def _softmax(correct_positive):
    return lambda *args: reference.sampled_softmax(*args, correct_positive=correct_positive)


def _decoupled(label_power):
    return Case(
        lambda **kwargs: losses.DecoupledSoftmaxLoss(label_power=label_power, **kwargs),
        lambda f, w, b, y, s, _, n: reference.decoupled_softmax(f, w, b, y, s, n, label_power),
    )


def _negative_sampling(reduction):
    return lambda f, w, b, y, s, *_: reference.negative_sampling(f, w, b, y, s, reduction)


def _calibrated(t):
    def oracle(features, embeddings, bias, labels, sampled, *_):
        weight = 1 - t * (1 - sampled.shape[-1] / (len(embeddings) - 1))
        return reference.negative_sampling(
            features, embeddings, bias, labels, sampled, "sum", weight
        )

    return Case(lambda **kwargs: losses.NegativeSamplingLoss(calibration=t, **kwargs), oracle)


def _ranking(margin, form="logistic"):
    return lambda f, w, b, y, s, *_: reference.ranking(f, w, b, y, s, margin, form)


def _normalization(loss, complement):
    return Case(
        lambda **kwargs: loss(complement=complement, **kwargs),
        lambda *args: reference.normalization(*args, complement=complement),
    )


LOSSES = {
    "softmax": Case(
        losses.SoftmaxLoss, lambda f, w, b, y, *_: reference.full_softmax(f, w, b, y)
    ),
    "sampled softmax": Case(losses.SampledSoftmaxLoss, _softmax(False)),
    "sampled softmax as tf.nn": Case(
        lambda **kwargs: losses.SampledSoftmaxLoss(correct_positive=True, **kwargs),
        _softmax(True),
    ),
    "decoupled softmax": _decoupled(0.5),
    "decoupled softmax, a row weighs 1": _decoupled(1),
    "nce": Case(losses.NCELoss, reference.nce),
    "negative sampling": Case(losses.NegativeSamplingLoss, _negative_sampling("sum")),
    "mean negative sampling": Case(
        lambda **kwargs: losses.NegativeSamplingLoss(negative_reduction="mean", **kwargs),
        _negative_sampling("mean"),
    ),
    "calibrated negative sampling": _calibrated(0.75),
    "sigmoid": Case(losses.SigmoidLoss, reference.sampled_sigmoid, reference.full_sigmoid),
    "absolute softmax": Case(
        losses.AbsoluteSoftmaxLoss, reference.absolute_softmax, reference.full_absolute_softmax
    ),
    "importance": _normalization(losses.ImportanceNormalizationLoss, "label"),
    "importance, batch": _normalization(losses.ImportanceNormalizationLoss, "batch"),
    "bernoulli": _normalization(losses.BernoulliNormalizationLoss, "label"),
    "bernoulli, batch": _normalization(losses.BernoulliNormalizationLoss, "batch"),
    "ranking": Case(
        losses.RankingLoss, lambda *args: _ranking(np.log(len(args[1]) - 1))(*args)
    ),
    "ranking by 1": Case(lambda **kwargs: losses.RankingLoss(margin=1, **kwargs), _ranking(1)),
    "hinge ranking": Case(
        lambda **kwargs: losses.RankingLoss(form="hinge", **kwargs), _ranking(1, "hinge")
    ),
    "black out": Case(losses.BlackOutLoss, reference.black_out),
}
# One case per class, for tests of code that does not depend on options; others are slow.
CLASSES = [
    "softmax",
    "sampled softmax",
    "decoupled softmax",
    "nce",
    "negative sampling",
    "sigmoid",
    "absolute softmax",
    "importance, batch",
    "bernoulli",
    "ranking",
    "black out",
]


def each_loss(short=LOSSES, without=()):
    """Returns `parametrize` with the cases; those that are not in `short` are slow."""
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(case, id=name, marks=[] if name in short else [pytest.mark.slow])
            for name, case in LOSSES.items()
            if name not in without
        ],
    )


EVERY_LOSS = each_loss()
ONE_OF_EACH_CLASS = each_loss(CLASSES)
SEVERAL = harness.pad([[3], [3, 5, 9], [0, 36], [], [7], [12, 1]])


class Problem:
    """Random features, weights, labels and samples with repeats and accidental hits."""

    def __init__(self, labels=SEVERAL, per_example=False, dtype="float32", seed=7):
        rng = np.random.default_rng(seed)
        self.labels = labels
        self.features = rng.normal(size=(BATCH, DIM)).astype(dtype)
        self.embeddings = rng.normal(size=(N, DIM)).astype("float32")
        self.bias = rng.normal(size=N).astype("float32")
        shape = (BATCH, SAMPLED) if per_example else (SAMPLED,)
        self.sampled = rng.integers(0, N, shape)
        self.sampled[..., :3] = [3, 9, 3]
        self.true_count = rng.uniform(0.1, 2, labels.shape).astype("float32")
        self.sampled_count = rng.uniform(0.1, 2, shape).astype("float32")

    def head(self, **kwargs):
        values = harness.sampled_values(self.sampled, self.true_count, self.sampled_count)
        sampler = harness.FixedSampler(values)
        return harness.built_head(self.embeddings, self.bias, sampler, **kwargs)

    def expected(self, oracle, features=None):
        features = self.features if features is None else features
        weights = (self.embeddings.astype("float64"), self.bias.astype("float64"))
        return self.oracle_on(oracle, features, *weights)

    def naive(self, oracle, dtype):
        """Returns the loss of logits computed entirely in `dtype`."""
        logits = low_precision.naive_logits(self.features, self.embeddings, self.bias, dtype)
        return self.oracle_on(oracle, *low_precision.problem_of_logits(logits))

    def oracle_on(self, oracle, features, embeddings, bias):
        counts = (self.true_count.astype("float64"), self.sampled_count.astype("float64"))
        return oracle(features, embeddings, bias, self.labels, self.sampled, *counts)


def check_low_precision(case, dtype, make_problem):
    """Checks that the largest error is at most twice that of the naive logits."""
    found = []
    for seed in range(5):
        problem = make_problem(seed=seed)
        logits = problem.head(dtype=f"mixed_{dtype}")(problem.features, training=True)
        assert logits.dtype == dtype
        actual = case.loss(reduction=None)(problem.labels, logits)
        assert actual.dtype == "float32"
        exact = problem.expected(case.oracle)
        found.append((actual.numpy(), problem.naive(case.oracle, dtype), exact))
    low_precision.assert_within_twice_the_naive_error(*np.concatenate(found, axis=1))
