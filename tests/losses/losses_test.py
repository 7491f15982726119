"""Every loss against its formula, against `tf.nn`, and against the full softmax."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tests.losses import table
from tests.losses.table import (
    BATCH,
    CLASSES,
    DIM,
    EVERY_LOSS,
    LOSSES,
    ONE_OF_EACH_CLASS,
    SAMPLED,
    SEVERAL,
    N,
    Problem,
    each_loss,
)
from tests.papers.factored import spherical_losses_test
from tests.reference.finite_differences import finite_differences
from tests.slow import slow_but
from tf_largeout import losses


def test_every_public_loss_is_in_the_table():
    covered = {type(case.loss()).__name__ for case in LOSSES.values()}
    # With separate tests: one is for another layer, the other for logits of cosines.
    covered |= {"HierarchicalSoftmaxLoss", "MarginSoftmaxLoss"}
    covered |= {type(loss()).__name__ for loss, _ in spherical_losses_test.LOSSES.values()}
    assert harness.public_classes(losses, losses.TaggedLoss) == covered


# With one label per example, and a sample that all examples share.
@EVERY_LOSS
@pytest.mark.parametrize(
    "labels, per_example",
    [
        pytest.param(SEVERAL, False, id="several-False"),
        pytest.param(SEVERAL, True, id="several-True"),
        pytest.param(SEVERAL[:, :1], False, id="one-False"),
        pytest.param(SEVERAL[:, :1], True, id="one-True", marks=pytest.mark.slow),
    ],
)
def test_equals_its_formula(case, labels, per_example):
    problem = Problem(labels, per_example)
    logits = problem.head()(problem.features, training=True)
    actual = case.loss(reduction=None)(problem.labels, logits)
    np.testing.assert_allclose(actual, problem.expected(case.oracle), rtol=1e-5, atol=1e-5)


@each_loss([*CLASSES, "hinge ranking"])
@pytest.mark.parametrize("per_example", slow_but([False], [False, True]))
def test_gradient_equals_finite_differences_of_its_formula(case, per_example):
    problem = Problem(per_example=per_example)
    _, gradients = harness.loss_and_gradients(
        case.loss(reduction="sum"), problem.head(), problem.features, problem.labels
    )
    for actual, name in zip(gradients, ["features", "embeddings", "bias"], strict=True):
        expected = finite_differences(problem, name, case.oracle)
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("num_true", [1, 3])
@pytest.mark.parametrize(
    "loss, tf_loss",
    [
        (
            losses.SampledSoftmaxLoss(correct_positive=True, reduction=None),
            "sampled_softmax_loss",
        ),
        (losses.NCELoss(reduction=None), "nce_loss"),
    ],
    ids=["sampled_softmax_loss", "nce_loss"],
)
def test_values_and_gradients_equal_those_of_tf_nn(loss, tf_loss, num_true):
    labels = np.array([[3, 5, 9], [0, 1, 36], [7, 8, 3], [2, 4, 6], [9, 3, 1], [5, 6, 7]])
    problem = Problem(labels[:, :num_true])
    # Distinct, because tf.nn masks only one draw of a class that is drawn twice.
    problem.sampled = np.arange(1, 1 + 3 * SAMPLED, 3) % N
    head = problem.head()
    actual, gradients = harness.loss_and_gradients(loss, head, problem.features, problem.labels)
    features = tf.constant(problem.features)
    embeddings, bias = tf.constant(problem.embeddings), tf.constant(problem.bias)
    with tf.GradientTape() as tape:
        tape.watch([features, embeddings, bias])
        expected = getattr(tf.nn, tf_loss)(
            embeddings, bias, problem.labels, features, SAMPLED, N, num_true=num_true,
            sampled_values=head.sampler.sampled_values, remove_accidental_hits=True,
        )  # fmt: skip
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    expected_gradients = tape.gradient(expected, [features, embeddings, bias])
    for ours, theirs in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(ours, tf.convert_to_tensor(theirs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("correct_positive", [False, True])
def test_sampled_softmax_over_every_class_once_is_the_full_softmax(correct_positive):
    problem = Problem()
    problem.sampled = np.arange(N)
    problem.sampled_count = np.ones(N)
    problem.true_count = np.ones(problem.labels.shape)
    loss = losses.SampledSoftmaxLoss(correct_positive=correct_positive, reduction="sum")
    sampled = harness.loss_and_gradients(loss, problem.head(), problem.features, problem.labels)
    full = harness.loss_and_gradients(
        losses.SoftmaxLoss(reduction="sum"), problem.head(), problem.features, problem.labels
    )
    for ours, theirs in zip([sampled[0], *sampled[1]], [full[0], *full[1]], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@ONE_OF_EACH_CLASS
def test_an_accidental_hit_has_no_effect_on_its_example(case):
    problem = Problem(SEVERAL[:, :1])
    before = _example_losses(case, problem)
    problem.sampled[np.isin(problem.sampled, problem.labels[0])] = problem.labels[0, 0]
    hits = problem.sampled == problem.labels[0, 0]
    problem.sampled_count[hits] *= 0.01
    after = _example_losses(case, problem)
    assert hits.any()
    np.testing.assert_allclose(after[0], before[0], rtol=1e-6)


def _example_losses(case, problem):
    logits = problem.head()(problem.features, training=True)
    return case.loss(reduction=None)(problem.labels, logits).numpy()


def test_accidental_hits_count_if_they_are_kept():
    problem = Problem(SEVERAL[:, :1])
    logits = problem.head()(problem.features, training=True)
    removed = losses.SampledSoftmaxLoss(reduction=None)(problem.labels, logits)
    kept = losses.SampledSoftmaxLoss(remove_accidental_hits=False, reduction=None)(
        problem.labels, logits
    )
    is_hit = np.isin(problem.labels[:, 0], problem.sampled)
    np.testing.assert_array_equal(kept.numpy() > removed.numpy(), is_hit)


# All losses compute logits with the same code.
@each_loss(["softmax", "sampled softmax", "nce", "importance, batch", "black out"])
@pytest.mark.parametrize("dtype", slow_but(["bfloat16"], ["bfloat16", "float16"]))
def test_the_low_precision_error_is_at_most_twice_the_naive_error(case, dtype):
    table.check_low_precision(case, dtype, Problem)


@ONE_OF_EACH_CLASS
def test_the_loss_is_exact_outside_of_training(case):
    problem = Problem()
    logits = problem.head()(problem.features, training=False)
    actual = case.loss(reduction=None)(problem.labels, logits)
    expected = case.exact(problem.features, problem.embeddings, problem.bias, problem.labels)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@ONE_OF_EACH_CLASS
def test_padded_labels_have_no_gradient(case):
    problem = Problem(harness.pad([[3], [3, 5, 9], [5, 36], [], [7], [12, 1]]))
    problem.sampled = np.full(SAMPLED, 20)
    problem.bias[20] += 9  # above the labels, so that a hinge loss has a gradient
    _, (_, embeddings, _) = harness.loss_and_gradients(
        case.loss(), problem.head(), problem.features, problem.labels
    )
    if not isinstance(case.loss(), losses.SoftmaxLoss):
        touched = np.flatnonzero(np.abs(embeddings).sum(axis=1))
        np.testing.assert_array_equal(touched, [1, 3, 5, 7, 9, 12, 20, 36])
    else:
        assert np.isfinite(embeddings).all()


@ONE_OF_EACH_CLASS
def test_positions_of_sequences_are_examples(case):
    problem = Problem(SEVERAL)
    head = problem.head()
    flat = case.loss(reduction=None)(problem.labels, head(problem.features, training=True))
    in_time = case.loss(reduction=None)(
        problem.labels.reshape(2, 3, -1),
        head(problem.features.reshape(2, 3, DIM), training=True),
    )
    np.testing.assert_allclose(in_time, flat.numpy().reshape(2, 3), rtol=1e-6)


@EVERY_LOSS
def test_config_round_trip(case):
    harness.config_round_trip(case.loss(reduction="sum", name="some_name"))


@ONE_OF_EACH_CLASS
def test_an_empty_batch_gives_no_losses(case):
    problem = Problem(np.zeros((0, 2), np.int64))
    logits = problem.head()(problem.features[:0], training=True)
    assert case.loss(reduction=None)(problem.labels, logits).shape == (0,)


# Outside of training there are two losses, the exact one and the absolute softmax.
@pytest.mark.parametrize(
    "name, training",
    slow_but(
        [*((name, True) for name in CLASSES), ("softmax", False), ("absolute softmax", False)],
        itertools.product(LOSSES, [True, False]),
    ),
)
def test_a_batch_without_any_label_has_no_loss(name, training):
    case, problem = LOSSES[name], Problem(np.zeros((BATCH, 0), np.int64))
    logits = problem.head()(problem.features, training=training)
    rows = case.loss(reduction=None)(problem.labels, logits)
    np.testing.assert_array_equal(rows, np.zeros(BATCH))


@each_loss(CLASSES, without=["sigmoid"])  # which is not a softmax or a comparison
def test_the_loss_of_one_class_is_zero(case):
    values = harness.sampled_values([0, 0], np.ones((3, 1)), [2, 2])
    head = harness.built_head(np.ones((1, 4), "f4"), None, harness.FixedSampler(values))
    logits = head(np.ones((3, 4), "f4"), training=True)
    rows = case.loss(reduction=None)(np.zeros(3, np.int64), logits)
    if isinstance(case.loss(), losses.NCELoss | losses.NegativeSamplingLoss):
        np.testing.assert_allclose(rows, np.full(3, np.log1p(np.exp(-4))), rtol=1e-5)
    else:
        np.testing.assert_allclose(rows, np.zeros(3), atol=1e-6)
