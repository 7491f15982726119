"""Weights of examples and sequences, and reductions, as in Keras's losses."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tests.losses.table import BATCH, CLASSES, DIM, LOSSES, N, Problem
from tests.reference.losses import full_softmax, reduced
from tests.slow import slow_but
from tf_largeout import losses

REDUCTIONS = ["sum", "sum_over_batch_size", "mean_with_sample_weight"]


# All reductions with one loss, and each loss with one reduction, as they share the code.
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
def test_reduction_and_sample_weight_work_as_in_keras(name, reduction):
    case, problem = LOSSES[name], Problem()
    has_label = np.any(problem.labels >= 0, axis=1)
    assert not has_label.all()
    weight = np.arange(BATCH, dtype="float32")
    for mask in (None, np.arange(BATCH) != 1, ~has_label):
        for weights in (None, weight, np.zeros(BATCH)):
            logits = problem.head()(problem.features, training=True)
            counts = has_label
            if mask is not None:
                logits._keras_mask, counts = tf.constant(mask), has_label & mask
            found = case.loss(reduction=reduction)(problem.labels, logits, weights)
            rows = problem.expected(case.oracle)
            expected = reduced(rows, counts, reduction, weights)
            assert float(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", slow_but(CLASSES, LOSSES))
def test_a_mean_divides_by_the_number_of_examples_with_labels(name):
    case, problem = LOSSES[name], Problem()
    weight = np.arange(BATCH, dtype="float32")
    has_label = np.any(problem.labels >= 0, axis=1)
    divisors = {
        "sum_over_batch_size": has_label.sum(),
        "mean_with_sample_weight": weight[has_label].sum(),
    }

    def gradients(reduction):
        loss = case.loss(reduction=reduction)
        arguments = problem.head(), problem.features, problem.labels
        return harness.loss_and_gradients(loss, *arguments, sample_weight=weight)[1]

    of_sum = gradients("sum")
    for reduction, divisor in divisors.items():
        for found, expected in zip(gradients(reduction), of_sum, strict=True):
            np.testing.assert_allclose(found, expected / divisor, rtol=1e-5, atol=1e-6)


def test_masks_of_sequences_apply_to_later_dimensions():
    """As Keras's weights, unlike its masks `[batch, 2]` of `[batch, 2, time, dim]`."""
    problem = Problem()
    features = problem.features.reshape(3, 2, 1, DIM)
    logits = problem.head()(features, training=False)
    logits._keras_mask = tf.constant([[True, True], [True, False], [False, True]])
    labels = np.array([[[3], [-1]], [[5], [6]], [[7], [8]]])
    counts = np.array([True, False, True, False, False, True])
    args = problem.features, problem.embeddings, problem.bias, labels.reshape(6, 1)
    expected = reduced(full_softmax(*args), counts, "sum_over_batch_size")
    assert float(losses.SoftmaxLoss()(labels, logits)) == pytest.approx(expected, rel=1e-5)


WEIGHTS = list(itertools.product([(3,), (3, 1), (3, 1, 1)], [True, False]))


# All forms of weights with one loss, and one form with the two losses of evaluation.
@pytest.mark.slow
@pytest.mark.parametrize(
    "name, shape, known_rank",
    slow_but(
        [
            *(("sampled softmax", *form) for form in WEIGHTS),
        ],
        [(name, *form) for name in LOSSES for form in WEIGHTS],
    ),
    ids=str,
)
def test_one_weight_per_example_applies_to_the_whole_sequence(name, shape, known_rank):
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
def test_weights_of_another_shape_raise_an_error(name, shape):
    case, problem = LOSSES[name], Problem()
    logits = problem.head()(problem.features, training=True)
    with pytest.raises(ValueError, match="`sample_weight` must have.*Received: shape"):
        case.loss()(problem.labels, logits, sample_weight=np.ones(shape))
