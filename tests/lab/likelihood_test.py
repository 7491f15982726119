import json

import numpy as np
import pytest
import tensorflow as tf

from lab.kernel_trees import likelihood, likelihood_problems
from tf_largeout.layers import LargeOutput


def small(seed, epochs):
    return likelihood_problems.toy(seed, epochs, num_classes=30, dim=5, examples=200)


def test_the_labels_of_the_toy_problem_follow_its_true_model():
    problem = likelihood_problems.toy(3, 1, num_classes=20, dim=4, examples=5000)
    true = np.exp(problem.true_log_probabilities)
    np.testing.assert_allclose(true.sum(axis=1), 1)
    counts, expected = problem.label_counts, true.sum(axis=0)
    assert np.all(np.abs(counts - expected) < 5 * np.sqrt(expected + 1))


def test_pairs_of_words_are_near_each_other():
    inputs, labels = likelihood_problems._pairs(np.arange(100), 500, 2, np.random.default_rng())
    assert {-2, -1, 1, 2} == set(labels - inputs)
    assert labels.min() >= 0 and labels.max() < 100


def test_figures_equal_their_definition():
    problem = small(1, 1)
    probabilities = np.random.default_rng(0).dirichlet(np.ones(30), 200)
    exact = np.random.default_rng(1).dirichlet(np.ones(30), 200)
    found = likelihood.figures(problem, np.log(probabilities), np.log(exact))
    true = np.exp(problem.true_log_probabilities)
    likely = [np.log(probabilities[i, label]) for i, label in enumerate(problem.labels)]
    np.testing.assert_allclose(found["log_likelihood"], np.mean(likely))
    np.testing.assert_allclose(found["from_exact"], np.mean(abs(probabilities - exact)))
    np.testing.assert_allclose(found["from_true"], np.mean(abs(probabilities - true)))


@pytest.mark.parametrize("name", likelihood.ESTIMATORS)
def test_every_estimator_gives_a_finite_loss(name):
    estimator, counts = likelihood.ESTIMATORS[name], np.arange(1, 31)
    sampler = estimator.sampler and estimator.sampler(5, counts)
    output = LargeOutput(30, sampler)
    logits = output(tf.ones([4, 5]), training=True)
    assert np.isfinite(estimator.loss()(tf.constant([0, 1, 2, 29]), logits))


@pytest.mark.slow
def test_methods_are_trained_and_the_exact_one_has_distance_zero(tmp_path, monkeypatch):
    monkeypatch.setitem(likelihood.PROBLEMS, "toy", small)
    monkeypatch.setattr(likelihood, "_GRID", (0.1,))
    arguments = f"--epochs 2 --seeds 1 2 --num-sampled 5 --json {tmp_path}/l.json "
    arguments += f"--png {tmp_path}/l.png --estimators ranking_1"
    likelihood.main(arguments.split())
    runs = json.loads((tmp_path / "l.json").read_text())["runs"]
    assert [run["estimator"] for run in runs] == 2 * ["exact", "ranking_1"]
    for run in runs:
        assert len(run["points"]) == 2
        for point in run["points"]:
            assert set(point) == set(likelihood.FIGURES)
            assert (point["from_exact"] == 0) == (run["estimator"] == "exact")
    assert (tmp_path / "l.png").stat().st_size > 10_000
