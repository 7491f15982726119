"""The reference of the comparison, against plain loops and finite differences."""

import dataclasses

import numpy as np

from custom_ops.cuda.compare import problem, reference
from custom_ops.cuda.compare.problem import Sizes

SIZES = Sizes(classes=40, dim=5, batch=9, sampled=12, exact_batch=8, top_k=6, block=16)
STEP = 1e-3


def with_change(made, field, at, change):
    values = getattr(made, field).astype(np.float64)
    values[at] += change
    return dataclasses.replace(made, **{field: values})


def differences(loss_of, made, field):
    """The gradient of a loss, by central differences."""
    gradient = np.zeros(getattr(made, field).shape)
    for at in np.ndindex(gradient.shape):
        ends = [loss_of(with_change(made, field, at, sign * STEP))["loss"] for sign in (1, -1)]
        gradient[at] = (ends[0] - ends[1]) / (2 * STEP)
    return gradient


def test_the_sampled_loss_is_that_of_the_label_among_its_negatives():
    made = problem.sampled_problem(SIZES, 1)
    losses = []
    for b, label in enumerate(made.labels):
        true = made.features[b] @ made.embeddings[label] + made.true_offsets[b]
        total = np.exp(true)
        for j, one in enumerate(made.sampled):
            if one != label:
                total += np.exp(made.features[b] @ made.embeddings[one] + made.offsets[j])
        losses.append(np.log(total) - true)
    found = reference.sampled_softmax(made)["loss"]
    np.testing.assert_allclose(found, np.mean(losses), rtol=1e-5)


def test_the_sampled_step_follows_its_gradients():
    made = problem.sampled_problem(SIZES, 1)
    found = reference.sampled_softmax(made)
    expected = differences(reference.sampled_softmax, made, "features")
    np.testing.assert_allclose(found["d_features"], expected, atol=1e-6)
    gradient = differences(reference.sampled_softmax, made, "embeddings")[made.touched]
    momentum = 0.9 * made.momentum[made.touched] + 0.1 * gradient
    velocity = 0.999 * made.velocity[made.touched] + 0.001 * gradient**2
    # The corrections of the first step: 1 - 0.9 and 1 - 0.999.
    change = -0.01 * (momentum / 0.1) / (np.sqrt(velocity / 0.001) + 1e-12)
    expected = made.changes(made.embeddings[made.touched] + change)
    for name in ("label rows", "negative rows"):
        np.testing.assert_allclose(found[name], expected[name], atol=1e-4 * abs(change).max())
        assert len(found[name])


def test_the_softmax_loss_and_gradients(monkeypatch):
    monkeypatch.setattr(reference, "_BLOCK", 16)
    made = problem.class_problem(SIZES, 2)
    logits = made.features.astype(np.float64) @ made.embeddings.T
    true_logits = logits[np.arange(len(logits)), made.labels]
    expected = np.mean(np.log(np.exp(logits).sum(1)) - true_logits)
    found = reference.softmax(made)
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-6)
    np.testing.assert_allclose(reference.softmax_loss(made)["loss"], expected, rtol=1e-6)
    for name in ("features", "embeddings"):
        gradient = differences(reference.softmax_loss, made, name)
        np.testing.assert_allclose(found[f"d_{name}"], gradient, atol=1e-6)


def test_the_best_classes(monkeypatch):
    monkeypatch.setattr(reference, "_BLOCK", 16)
    made = problem.class_problem(SIZES, 2)
    logits = made.features.astype(np.float64) @ made.embeddings.astype(np.float64).T
    expected = -np.sort(-logits, 1)[:, :6]
    found = reference.top_k(made)
    np.testing.assert_allclose(found["scores"], expected, rtol=1e-6)
    ids = np.argsort(-logits, 1)[:, :6]
    np.testing.assert_allclose(reference.logits_of(made, ids[:, ::-1]), expected, rtol=1e-6)


def test_ids_that_are_none_or_repeated_have_no_logits():
    made = problem.class_problem(SIZES, 2)
    ids = np.tile(np.arange(6), (8, 1))
    ids[0, 0], ids[1, 0], ids[2, 0] = -1, 40, 5
    found = np.isnan(reference.logits_of(made, ids)).sum(1)
    assert list(found) == [1, 1, 6, 0, 0, 0, 0, 0]


def test_expected_counts_are_those_of_the_draws():
    random = np.random.default_rng(7)
    met, expected = np.zeros(20), np.zeros(20)
    for _ in range(4000):
        sampled, tries = problem._distinct(random, 6, 20)
        met[sampled] += 1
        expected += problem._expected_counts(np.arange(20), tries, 20)
    # Given the number of tries the counts are near, not equal (as those of TensorFlow).
    np.testing.assert_allclose(met / 4000, expected / 4000, atol=0.03)
