"""Losses of the spherical family, compared with their formulas over all logits."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness, low_precision
from tests.reference import spherical_losses as reference
from tests.reference.factored_output import DenseLayer, with_labels
from tests.reference.finite_differences import finite_differences
from tests.reference.losses import reduced
from tests.slow import slow_but
from tf_largeout import layers, losses
from tf_largeout.metrics import RecallAtK

N, DIM, BATCH = 37, 5, 6
SEVERAL = harness.pad([[3], [3, 5, 9], [0, 36, 0], [], [7], [12, 1]])
LOSSES = {
    "squared_error": (losses.SquaredErrorLoss, reference.SquaredError),
    "spherical_softmax": (losses.SphericalSoftmaxLoss, reference.SphericalSoftmax),
    "taylor_softmax": (losses.TaylorSoftmaxLoss, reference.TaylorSoftmax),
    "z_loss": (losses.ZLoss, reference.ZLoss),
    "spherical_softmax of 2": (
        lambda **kwargs: losses.SphericalSoftmaxLoss(2, **kwargs),
        lambda n: reference.SphericalSoftmax(n, 2),
    ),
    "squared_error of .3": (
        lambda **kwargs: losses.SquaredErrorLoss(0.3, **kwargs),
        lambda n: reference.SquaredError(n, 0.3),
    ),
    "other z_loss": (
        lambda **kwargs: losses.ZLoss(3.0, 0.5, 2.0, **kwargs),
        lambda n: reference.ZLoss(n, 0.5, 3.0, 2.0),
    ),
}
EVERY_LOSS = pytest.mark.parametrize("loss, formula", LOSSES.values(), ids=LOSSES)
CROSS_ENTROPIES = {name: LOSSES[name] for name in ("spherical_softmax", "taylor_softmax")}


class Problem:
    """A layer with random weights, and the results of the formulas."""

    def __init__(self, formula, labels=SEVERAL, dtype="float32", seed=7, policy=None):
        random = np.random.default_rng(seed)
        self.labels, self.formula = labels, formula(N)
        self.features = random.normal(size=[BATCH, DIM]).astype(dtype)
        self.embeddings = random.normal(size=[N, DIM]).astype("float32")
        self.bias = random.normal(size=N).astype("float32")
        self.layer = layers.FactoredOutput(
            N,
            0.1,
            embeddings_initializer=self.embeddings,
            bias_initializer=self.bias,
            dtype=policy or dtype,
        )

    def logits(self):
        return self.features.astype("float64") @ self.embeddings.T.astype("float64") + self.bias

    def expected(self, oracle=None):
        """Returns the loss of each example."""
        return self.of_logits(self.logits())

    def of_logits(self, logits):
        batch = with_labels(self.features, self.labels)
        targets = batch.dense_targets(N)
        if isinstance(self.formula, reference.SquaredError):
            targets = np.float64(targets > 0)
        return self.formula.of_logits(logits, targets) * np.any(self.labels >= 0, axis=1)


@EVERY_LOSS
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("labels", [SEVERAL, SEVERAL[:, :1]], ids=["several", "one"])
def test_equals_its_formula(loss, formula, training, labels):
    problem = Problem(formula, labels)
    found = loss(reduction=None)(labels, problem.layer(problem.features, training=training))
    assert found.dtype == "float32"
    np.testing.assert_allclose(found, problem.expected(), rtol=1e-5, atol=1e-5)


@EVERY_LOSS
def test_the_gradient_equals_finite_differences_of_its_formula(loss, formula):
    problem = Problem(formula, dtype="float64")
    features = tf.constant(problem.features)
    with tf.GradientTape() as tape:
        tape.watch(features)
        logits = problem.layer(features, training=True)
        value = loss(reduction="sum", dtype="float64")(SEVERAL, logits)
    found = tape.gradient(value, features)
    expected = finite_differences(problem, "features", None)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("loss, formula", CROSS_ENTROPIES.values(), ids=CROSS_ENTROPIES)
def test_the_probabilities_of_all_classes_sum_to_one(loss, formula):
    problem = Problem(formula)
    logits = problem.layer(np.repeat(problem.features[:1], N, axis=0))
    rows = loss(reduction=None)(np.arange(N), logits)
    assert np.sum(np.exp(-rows)) == pytest.approx(1, rel=1e-5)


def test_the_z_loss_is_invariant_to_shift_and_scale_of_logits():
    problem = Problem(reference.ZLoss)
    row = losses.ZLoss(reduction=None)
    before = row(SEVERAL, problem.layer(problem.features))
    shift = np.float32([1, 2, 3, 4, 5])
    moved = layers.FactoredOutput(
        N,
        0.1,
        embeddings_initializer=3 * problem.embeddings + shift,
        bias_initializer=3 * problem.bias - 7,
    )
    np.testing.assert_allclose(row(SEVERAL, moved(problem.features)), before, rtol=1e-4)


@EVERY_LOSS
@pytest.mark.parametrize("reduction", ["sum", "sum_over_batch_size", "mean_with_sample_weight"])
def test_reduction_and_sample_weight_work_as_in_keras(loss, formula, reduction):
    problem = Problem(formula)
    weight = np.arange(BATCH, dtype="float32")
    logits = problem.layer(problem.features, training=True)
    found = loss(reduction=reduction)(SEVERAL, logits, sample_weight=weight)
    expected = reduced(problem.expected(), np.any(SEVERAL >= 0, axis=1), reduction, weight)
    assert float(found) == pytest.approx(expected, rel=1e-5)


@EVERY_LOSS
def test_positions_of_sequences_are_examples(loss, formula):
    problem = Problem(formula)
    in_time = loss(reduction=None)(
        SEVERAL.reshape(2, 3, -1),
        problem.layer(problem.features.reshape(2, 3, DIM), training=True),
    )
    np.testing.assert_allclose(in_time, problem.expected().reshape(2, 3), rtol=1e-5, atol=1e-5)


@EVERY_LOSS
@pytest.mark.parametrize("dtype", slow_but(["bfloat16"], ["bfloat16", "float16"]))
def test_the_low_precision_error_is_at_most_twice_the_naive_error(loss, formula, dtype):
    found = []
    for seed in range(5):
        problem = Problem(formula, seed=seed, policy=f"mixed_{dtype}")
        rows = loss(reduction=None)(SEVERAL, problem.layer(problem.features, training=True))
        weights = problem.features, problem.embeddings, problem.bias
        naive = problem.of_logits(low_precision.naive_logits(*weights, dtype))
        found.append((rows.numpy(), naive, problem.expected()))
    low_precision.assert_within_twice_the_naive_error(*np.concatenate(found, axis=1))


@EVERY_LOSS
@pytest.mark.parametrize("labels", [np.zeros([BATCH, 0], int), np.full([BATCH, 2], -1)])
def test_a_batch_without_labels_has_no_loss(loss, formula, labels):
    problem = Problem(formula)
    rows = loss(reduction=None)(labels, problem.layer(problem.features, training=True))
    np.testing.assert_array_equal(rows, np.zeros(BATCH))


@EVERY_LOSS
def test_config_round_trip(loss, formula):
    harness.config_round_trip(loss(reduction="sum", name="some_name"))


@pytest.mark.parametrize("repeated", [False, True])
def test_sparse_real_valued_targets_equal_the_formula(repeated):
    problem = Problem(reference.SquaredError)
    places, values = [[0, 3], [0, 9], [2, 1]], np.float32([0.5, -2, 3])
    if repeated:  # They are added.
        places, values = [*places, [0, 3]], np.float32([*values, 4])
    targets = tf.SparseTensor(places, values, [BATCH, N])
    dense = np.zeros([BATCH, N])
    np.add.at(dense, tuple(np.transpose(places)), values)
    rows = losses.SquaredErrorLoss(reduction=None)(targets, problem.layer(problem.features))
    np.testing.assert_allclose(rows, np.sum((problem.logits() - dense) ** 2, 1), rtol=1e-5)


@pytest.mark.parametrize("shape", [[BATCH, N + 1], [BATCH, N, 1]])
def test_sparse_targets_of_another_width_raise_an_error(shape):
    targets = tf.SparseTensor([[0] * len(shape)], [1.0], shape)
    logits = Problem(reference.SquaredError).layer(np.ones([BATCH, DIM], "float32"))
    message = rf"\[batch, {N}\], one column per class. Received: shape"
    with pytest.raises(ValueError, match=message):
        losses.SquaredErrorLoss()(targets, logits)


def test_sparse_targets_of_another_number_of_examples_raise_an_error():
    targets = tf.SparseTensor([[0, 1]], [1.0], [BATCH + 1, N])
    logits = Problem(reference.SquaredError).layer(np.ones([BATCH, DIM], "float32"))
    with pytest.raises(ValueError, match="labels must have the shape"):
        losses.SquaredErrorLoss()(targets, logits)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_a_target_of_zero_is_observed(weight):
    problem = Problem(reference.SquaredError)
    targets = tf.SparseTensor([[0, 3], [0, 9]], [0.0, 2.0], [BATCH, N])
    rows = losses.SquaredErrorLoss(weight, reduction=None)(
        targets, problem.layer(problem.features)
    )
    logits = problem.logits()
    expected = weight * (logits**2).sum(1)
    expected[0] += (1 - weight) * logits[0, 3] ** 2
    expected[0] += (logits[0, 9] - 2) ** 2 - weight * logits[0, 9] ** 2
    np.testing.assert_allclose(rows, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "place, value, message",
    [
        (
            [0, N],
            1.0,
            rf"sparse targets must be a class id in \[0, {N}\).*Received the indices",
        ),
        ([0, -1], 1.0, "others must be within the shape"),
        ([BATCH, 0], 1.0, "others must be within the shape"),
        ([0, 1], np.nan, "Sparse targets must be finite"),
        ([0, 1], np.inf, "Sparse targets must be finite"),
    ],
)
def test_wrong_sparse_targets_raise_an_error(place, value, message):
    problem = Problem(reference.SquaredError)
    logits = problem.layer(problem.features, training=True)
    targets = tf.SparseTensor([[0, 2], place], np.float32([1, value]), [BATCH, N])
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"(?s){message}"):
        losses.SquaredErrorLoss()(targets, logits)


@pytest.mark.parametrize("weight", [-0.1, np.nan, "1"])
def test_an_invalid_weight_of_unobserved_classes_raises_an_error(weight):
    with pytest.raises(ValueError, match="`unobserved_weight` must be"):
        losses.SquaredErrorLoss(weight)


@pytest.mark.parametrize("name", ["spherical_softmax", "taylor_softmax", "z_loss"])
@pytest.mark.parametrize("training", [True, False])
def test_soft_targets_weight_the_losses_of_their_classes(name, training):
    loss, formula = LOSSES[name]
    problem, dense = Problem(formula), np.zeros([BATCH, N], "float32")
    dense[[0, 0, 1, 2], [3, 9, 0, 36]] = [0.5, 0.3, 1, 0.25]
    targets = tf.sparse.from_dense(dense)
    found = loss(reduction=None)(targets, problem.layer(problem.features, training=training))
    expected = problem.formula.of_logits(problem.logits(), dense)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_metrics_use_classes_with_positive_numeric_targets():
    problem = Problem(reference.SquaredError)
    dense = np.zeros([BATCH, N], "float32")
    dense[[0, 0, 1, 2, 2], [3, 9, 0, 36, 5]] = [2, -1, 1, 0.25, 7]
    labels = harness.pad([[3], [0], [5, 36], [], [], []])
    metrics = []
    for y_true in (tf.sparse.from_dense(dense), labels):
        logits, metric = problem.layer(problem.features), RecallAtK(10)
        losses.SquaredErrorLoss()(y_true, logits)
        metric.update_state(y_true, logits)
        metrics.append(float(metric.result()))
    assert metrics[0] == metrics[1] > 0


@EVERY_LOSS
def test_a_label_out_of_range_raises_an_error(loss, formula):
    logits = Problem(formula).layer(np.ones([2, DIM], "float32"), training=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"(?s)\[0, {N}\).*{N}"):
        loss()(np.array([0, N]), logits)


@keras.saving.register_keras_serializable(package="tests")
class Quartic(losses.SphericalLoss):
    """A custom loss."""

    def label_losses(self, squares, sums, true_logits, num_classes):
        return (squares / num_classes) ** 2 + sums - 3 * true_logits


class OfQuartic:
    """The same loss in NumPy."""

    def of_logits(self, o, targets):
        own = (targets * o).sum(-1)
        return ((o**2).mean(-1) ** 2 + o.sum(-1)) - 3 * own

    def gradient(self, o, targets):
        return 4 * (o**2).mean(-1, keepdims=True) * o / N + 1 - 3 * targets


def test_a_custom_spherical_loss_is_one_short_class():
    problem = Problem(lambda n: OfQuartic(), SEVERAL[:, :1] % 5, "float64")
    problem.labels[3] = 2
    dense = DenseLayer(problem.embeddings, problem.bias, OfQuartic())
    batch = with_labels(problem.features, problem.labels)
    loss, variable = Quartic(dtype="float64"), tf.Variable(problem.features)
    for _ in range(3):
        with tf.GradientTape() as tape:
            value = loss(problem.labels, problem.layer(variable, training=True))
        gradient = tape.gradient(value, variable)
        expected = dense.step(batch, 0.1)
        np.testing.assert_allclose(value, expected[0], rtol=1e-9)
        np.testing.assert_allclose(gradient, expected[1], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(problem.layer.class_embeddings(), dense.kernel, rtol=1e-9)


def test_a_custom_spherical_loss_without_a_formula_raises_an_error():
    logits = Problem(reference.ZLoss).layer(np.ones([BATCH, DIM], "float32"))
    with pytest.raises(NotImplementedError, match="SphericalLoss must define `label_losses`"):
        losses.SphericalLoss()(SEVERAL, logits)


@pytest.mark.parametrize("bad", [np.nan, np.inf, "1", True])
@pytest.mark.parametrize("name", ["target", "slope", "scale"])
def test_invalid_arguments_of_the_z_loss_raise_an_error(name, bad):
    with pytest.raises(ValueError, match=f"`{name}` must be a.* number"):
        losses.ZLoss(**{name: bad})


@pytest.mark.parametrize("bad", [0, -1, np.nan, "1", True])
def test_an_invalid_epsilon_raises_an_error(bad):
    with pytest.raises(ValueError, match="`epsilon` must be a number above 0"):
        losses.SphericalSoftmaxLoss(epsilon=bad)
