"""Weights of rows and of whole sequences, and reductions, as Keras's losses have them."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.losses.table import BATCH, CLASSES, DIM, LOSSES, N, Problem
from tests.slow import slow_but

REDUCTIONS = ["sum", "sum_over_batch_size", "mean_with_sample_weight"]


# All reductions with one loss, and each class with one reduction: they share the code.
@pytest.mark.parametrize(
    "name, reduction",
    slow_but(
        [
            *(("sampled softmax", reduction) for reduction in REDUCTIONS),
            *((name, "sum_over_batch_size") for name in CLASSES),
        ],
        itertools.product(LOSSES, REDUCTIONS),
    ),
)
def test_reduction_and_sample_weight_are_those_of_keras(name, reduction):
    case, problem = LOSSES[name], Problem()
    logits = problem.head()(problem.features, training=True)
    rows = case.loss(reduction=None)(problem.labels, logits)
    weight = np.arange(BATCH, dtype="float32")
    actual = case.loss(reduction=reduction)(problem.labels, logits, sample_weight=weight)

    class PassOn(keras.losses.Loss):
        def call(self, y_true, y_pred):
            return y_pred

    expected = PassOn(reduction=reduction)(rows, rows, weight)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


WEIGHTS = list(itertools.product([(3,), (3, 1), (3, 1, 1)], [True, False]))


# All forms of weights with one loss, and one form with the two losses of evaluation.
@pytest.mark.parametrize(
    "name, shape, known_rank",
    slow_but(
        [
            *(("sampled softmax", *form) for form in WEIGHTS),
            *((name, (3, 1), False) for name in ("softmax", "absolute softmax")),
        ],
        [(name, *form) for name in LOSSES for form in WEIGHTS],
    ),
    ids=str,
)
def test_weights_of_the_batch_weigh_whole_sequences(name, shape, known_rank):
    case = LOSSES[name]
    rng = np.random.default_rng(31)
    features = rng.normal(size=(3, 3, DIM)).astype("float32")
    labels = rng.integers(0, N, (3, 3))
    weights = np.array([1.0, 0.0, 2.0], "float32")
    head = Problem().head()
    loss = case.loss(reduction=None)
    logits = lambda: head(features, training=False)  # noqa: E731
    as_is = loss(labels, logits())
    weighted = tf.function(lambda weight: loss(labels, logits(), sample_weight=weight))
    spec = tf.TensorSpec(shape if known_rank else None, tf.float32)
    weighted = weighted.get_concrete_function(spec)(tf.reshape(weights, shape))
    np.testing.assert_allclose(weighted, as_is * weights[:, None], rtol=1e-5)


BAD_SHAPES = [(BATCH, 2), (BATCH + 1,), (BATCH, 1, 2)]


@pytest.mark.parametrize(
    "name, shape",
    slow_but(
        [("softmax", BAD_SHAPES[0]), *(("sampled softmax", shape) for shape in BAD_SHAPES)],
        itertools.product(LOSSES, BAD_SHAPES),
    ),
    ids=str,
)
def test_weights_that_are_not_one_a_row_are_refused(name, shape):
    case, problem = LOSSES[name], Problem()
    logits = problem.head()(problem.features, training=True)
    with pytest.raises(ValueError, match="`sample_weight` must have.*Received: shape"):
        case.loss()(problem.labels, logits, sample_weight=np.ones(shape))
