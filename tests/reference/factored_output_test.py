"""The factored layer makes the same steps as the dense layer."""

import numpy as np
import pytest

from tests.reference.factored_output import FactoredLayer, Refused, with_labels, with_values
from tests.reference.factored_problem import (
    DIM,
    NUM_CLASSES,
    Problem,
    assert_equal,
    differences,
    each_loss,
)
from tests.reference.spherical_losses import LOSSES
from tests.slow import slow_but


def assert_refused(problem, batch, learning_rate, match):
    before = problem.factored.state()
    with pytest.raises(Refused, match=match):
        problem.factored.step(batch, learning_rate)
    for name, value in problem.factored.state().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


@each_loss
def test_the_gradient_of_the_features_matches_finite_differences(name):
    problem = Problem(name)
    batch = problem.labelled(5)
    expected = differences(
        lambda features: problem.dense.value(batch._replace(features=features)),
        batch.features,
    )
    _, gradient = problem.factored.step(batch, problem.learning_rate)
    assert_equal(gradient, expected, 1e-7)


@pytest.mark.parametrize("bias", slow_but([True], [True, False]))
@pytest.mark.parametrize("size", slow_but([7], [1, 7, 40]))
@each_loss
def test_many_steps_match_the_dense_layer(name, size, bias):
    problem = Problem(name, bias=bias)
    start = problem.dense.kernel.copy()
    problem.train(300, lambda: problem.labelled(size))
    problem.check_equal()
    assert np.abs(problem.dense.kernel - start).max() > 0.1


@pytest.mark.parametrize("size", slow_but([7], [1, 7, 40]))
def test_real_valued_targets_match_the_dense_layer(size):
    problem = Problem("squared_error")
    problem.train(300, lambda: problem.valued(size))
    problem.check_equal()


def test_targets_of_a_repeated_class_are_added():
    twice = with_values(np.ones([1, 2]), [[3, 3, -1]], [[0.5, 0.25, 9.0]])
    np.testing.assert_array_equal(twice.dense_targets(5), [[0, 0, 0, 0.75, 0]])
    assert (twice.ids[0] == 3).sum() == 1
    labels = with_labels(np.ones([2, 2]), [[3, 3, 1, -1], [-1, -1, -1, -1]])
    expected = [[0, 1 / 3, 0, 2 / 3, 0], [0, 0, 0, 0, 0]]
    np.testing.assert_allclose(labels.dense_targets(5), expected)
    np.testing.assert_array_equal(labels.weights, [2, 0])


@pytest.mark.parametrize(
    ("dim", "num_classes", "size"),
    [(5, 1, 3), (20, 7, 4), (3, 30, 50), (1, 3, 1)],
    ids=["one_class", "wider_than_classes", "batch_larger_than_width", "smallest"],
)
@each_loss
def test_unusual_shapes_match_the_dense_layer(name, dim, num_classes, size):
    problem = Problem(name, dim, num_classes)
    if name == "z_loss" and num_classes == 1:
        # A single logit has no standard deviation.
        assert_refused(problem, problem.labelled(size), 0.1, "not finite")
        return
    problem.train(30, lambda: problem.labelled(size))
    problem.check_equal()


@each_loss
def test_batches_without_examples_or_weights_change_nothing(name):
    problem = Problem(name)
    before = problem.factored.state()
    empty, weightless = problem.labelled(0), problem.labelled(6)
    problem.step(empty)
    problem.step(weightless._replace(weights=np.zeros(6)))
    problem.step(with_labels(problem.features(4), np.full([4, 2], -1)))
    for key, value in problem.factored.state().items():
        np.testing.assert_array_equal(value, before[key], err_msg=key)
    assert problem.factored.step(empty, 0.1)[1].shape == (0, DIM)


def test_a_singular_step_raises_an_error():
    problem = Problem("squared_error")
    batch = with_labels(problem.features(1), [[3]])
    # The squared error has gamma = 1, so M = I - 2 eta h h^T, where h has a 1 for the bias.
    singular = 1 / (2 * ((batch.features**2).sum() + 1))
    assert_refused(problem, batch, singular, "singular")
    # The dense layer would reach the target in that step. With a slightly smaller rate both do.
    problem.learning_rate = 0.99 * singular
    problem.step(batch)
    problem.check_equal()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e200])
@each_loss
def test_a_step_that_is_not_finite_raises_an_error(name, wrong):
    problem = Problem(name)
    batch = problem.labelled(7)
    batch.features[2, 3], batch.weights[2] = wrong, 1.0
    with np.errstate(all="ignore"):
        assert_refused(problem, batch, 0.1, "not finite")


def test_a_learning_rate_that_overflows_raises_an_error():
    problem = Problem("squared_error")
    assert_refused(problem, problem.labelled(7), 1e200, "not finite")


def test_two_losses_cannot_start_from_zero_weights():
    """At 0, the gradient of the spherical softmax is 0, and the Z-loss is not defined."""
    problem = Problem("spherical_softmax", scale=0.0)
    problem.step(problem.labelled(7))
    assert not problem.dense.kernel.any() and not problem.factored.weights().any()
    problem = Problem("z_loss", scale=0.0)
    assert_refused(problem, problem.labelled(7), 0.1, "not finite")
    for name in ("squared_error", "taylor_softmax"):
        problem = Problem(name, scale=0.0)
        for _ in range(20):
            problem.step(problem.labelled(7))
        problem.check_equal()
        assert problem.dense.kernel.any()


def test_stabilising_does_not_change_the_layer():
    problem = Problem("squared_error")
    for _ in range(250):
        problem.step(problem.labelled(7))
    factored, random = problem.factored, problem.random
    # Make one direction much too large. Steps with a valid learning rate do not do this.
    direction = random.normal(size=[DIM + 1, 1])
    direction /= np.linalg.norm(direction)
    grown = np.eye(DIM + 1) + 1e5 * direction @ direction.T
    factored.V, factored.U = factored.V @ np.linalg.inv(grown), grown @ factored.U
    sigma = np.linalg.svd(factored.U)[1]
    assert sigma[0] > 100 and sigma[-1] < 0.001
    before = factored.weights()
    features = problem.features(3)
    logits = factored.logits(features)
    offending = ((sigma < 0.001) | (sigma > 100)).sum()
    assert factored.stabilise() == offending >= 2
    sigma = np.linalg.svd(factored.U)[1]
    assert sigma[0] <= 100 and sigma[-1] >= 0.001
    assert_equal(factored.weights(), before, 1e-10)
    assert_equal(factored.logits(features), logits, 1e-10)
    np.testing.assert_array_equal(factored.Q, factored.Q.T)
    assert factored.drift()["U_inverse"] < 1e-12
    assert factored.stabilise() == 0


@pytest.mark.parametrize("name", ["Q", "w_bar", "U_inverse"])
def test_drift_measures_the_error_of_each_part(name):
    problem = Problem("taylor_softmax")
    for _ in range(20):
        problem.step(problem.labelled(7))
    assert max(problem.factored.drift().values()) < 1e-12
    sizes = []
    for _ in range(3):
        getattr(problem.factored, name)[1] *= 1.01
        sizes.append(problem.factored.drift()[name])
    assert 1e-5 < sizes[0] < sizes[1] < sizes[2]
    others = {key: size for key, size in problem.factored.drift().items() if key != name}
    assert max(others.values()) < 1e-12


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
def test_logits_and_best_classes_match_the_dense_layer(bias):
    problem = Problem("taylor_softmax", bias=bias)
    for _ in range(20):
        problem.step(problem.labelled(7))
    features = problem.features(9)
    logits = problem.dense.logits(features)
    assert_equal(problem.factored.logits(features), logits)
    scores, ids = problem.factored.top_k(features, 5)
    assert_equal(scores, -np.sort(-logits, axis=1)[:, :5])
    assert_equal(np.take_along_axis(logits, ids, 1), scores)


def test_in_a_tie_the_lower_id_comes_first():
    layer = FactoredLayer([[1.0], [2.0], [2.0], [0.0]], None, LOSSES["z_loss"](4))
    scores, ids = layer.top_k(np.array([[1.0], [-1.0], [0.0]]), 3)
    np.testing.assert_array_equal(ids, [[1, 2, 0], [3, 0, 1], [0, 1, 2]])
    np.testing.assert_array_equal(scores, [[2, 2, 1], [0, -1, -2], [0, 0, 0]])


@each_loss
def test_the_short_form_of_the_updates_equals_the_long_one(name):
    """The gradient of the logits is `E = 2 O Gamma + 1 sigma^T + A`, that of the features is
    `D = W^T E`. Then equations 34 and 35 become `w_bar - eta H E^T 1` and
    `Q - eta (D H^T + H D^T) + eta**2 H E^T E H^T`, which need only `E^T E` and `E^T 1`."""
    problem = Problem(name, bias=False)
    batch, eta = problem.labelled(7), problem.learning_rate
    layer, H = problem.factored, batch.features.T
    W, Q, w_bar = layer.weights(), layer.Q, layer.w_bar
    _, by_q, by_s, A = layer._loss(H, batch)
    y, WA = A.sum(0), W.T @ A
    O_one, O_O, O_A = H.T @ w_bar, H.T @ Q @ H, H.T @ WA
    E_one = 2 * by_q * O_one + NUM_CLASSES * by_s + y
    half = 2 * by_q[:, None] * O_A + np.outer(2 * by_q * O_one + y, by_s)
    E_E = 4 * np.outer(by_q, by_q) * O_O + half + half.T
    E_E += A.T @ A + NUM_CLASSES * np.outer(by_s, by_s)
    D = 2 * Q @ H * by_q + np.outer(w_bar, by_s) + WA
    layer.step(batch, eta)
    change = eta * D @ H.T
    assert_equal(layer.w_bar, w_bar - eta * H @ E_one, 1e-12)
    assert_equal(layer.Q, Q - change - change.T + eta**2 * H @ E_E @ H.T, 1e-12)
