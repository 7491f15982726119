import dataclasses
import functools
import itertools
import json
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.harness import own_process
from lab.barber_botev import __main__, likelihood, problems
from lab.vijayanarasimhan import training
from tests.reference import samplers
from tf_largeout.layers import LargeOutput
from tf_largeout.losses import BernoulliNormalizationLoss
from tf_largeout.papers.likelihood.losses import ranking_loss
from tf_largeout.samplers import BernoulliSampler

NOTE = pathlib.Path(likelihood.__file__).parent


def small(seed, epochs):
    return problems.toy(seed, epochs, num_classes=30, dim=5, examples=200)


def test_the_labels_of_the_toy_problem_follow_its_true_model():
    problem = problems.toy(3, 1, num_classes=20, dim=4, examples=5000)
    true = np.exp(problem.true_log_probabilities)
    np.testing.assert_allclose(true.sum(axis=1), 1)
    counts = np.bincount(problem.labels_looked_at, minlength=20)
    expected = true.sum(axis=0)
    assert np.all(np.abs(counts - expected) < 5 * np.sqrt(expected + 1))
    assert counts.sum() == 2000 and problem.label_counts.sum() == 5000


def test_pairs_of_words_are_near_each_other():
    inputs, labels = problems._pairs(np.arange(100), 500, 2, np.random.default_rng())
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
    uniform = likelihood.uniform_from_true(problem)
    np.testing.assert_allclose(uniform, np.mean(abs(1 / 30 - true)))


def test_the_exponent_of_bernoulli_rates_is_near_that_of_the_paper():
    """Section 4: `b = f^.54` on the toy problem. A class without examples counts as 1."""
    counts = problems.toy(1, 1).label_counts
    for own, expected in ((counts, 0.559), (counts[counts > 0], 0.547)):
        found = np.log(samplers.bernoulli(own, 20)) / np.log(samplers.unigram(own))
        np.testing.assert_allclose(found, expected, atol=1e-3)


def test_the_learning_rate_of_the_large_toy_problem_falls_to_zero(monkeypatch):
    problem = small(1, 2)
    monkeypatch.setattr(problems, "toy", lambda *_, **__: problem)
    problem = problems.toy_large(1, 2, examples=200)
    rate = problem.optimizer(0.1)._learning_rate
    np.testing.assert_allclose([rate(step) for step in (0, 4, 8)], [0.1, 0.05, 0.0], atol=1e-8)


@pytest.mark.parametrize("name", __main__.ARGUMENTS)
def test_the_command_of_the_note_is_that_of_its_files(name):
    options = vars(likelihood._parser().parse_args(__main__.command(name)))
    kept = json.loads((NOTE / f"{name}.json").read_text())
    for option in ("problem", "num_sampled", "epochs", "seeds"):
        assert kept[option] == options[option], option
    assert set(kept["estimators"]) == set(options["estimators"])
    for option in {"grid", "own_rates"} & set(kept):  # the first files do not have them
        assert kept[option] == pytest.approx(options[option]), option


def test_the_command_of_the_note_is_that_of_the_ranking_losses():
    options = training._parser().parse_args(__main__.RANKING)
    kept = json.loads((NOTE / "ranking.json").read_text())["runs"]
    found = {(run["task"], run["method"], run["seed"]) for run in kept}
    assert found <= set(itertools.product(options.tasks, options.methods, options.seeds))
    assert {run["seconds"] for run in kept} == {options.seconds}


def test_the_margin_of_the_hinge_loss_is_only_a_scale():
    """The rows of the margin 4, at 4 times the rate, are 4 times those of the margin 1."""
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=[4, 8, 3]), rng.integers(6, size=[4, 8, 1])
    found = []
    for margin in (1.0, 4.0):
        rows = tf.Variable(tf.zeros([6, 3], "float64"))
        for x, label in zip(inputs, labels, strict=True):
            with tf.GradientTape() as tape:
                logits = x @ tf.transpose(rows)
                true = tf.gather(logits, label, batch_dims=1)
                is_label = tf.constant(label == np.arange(6))
                others = tf.where(is_label, logits.dtype.min, logits)
                loss = ranking_loss(true, others, tf.ones_like(label, "bool"), margin, "hinge")
            rows.assign_sub(0.1 * margin * tape.gradient(loss, rows))
        found.append(rows.numpy())
    assert np.abs(found[0]).max() > 0.1
    np.testing.assert_allclose(found[1], 4 * found[0])


@pytest.mark.parametrize("name", likelihood.ESTIMATORS)
def test_every_estimator_gives_a_finite_loss(name):
    estimator, counts = likelihood.ESTIMATORS[name], np.arange(1, 31)
    sampler = estimator.sampler and estimator.sampler(5, counts, 0.5)
    output = LargeOutput(30, sampler)
    logits = output(tf.ones([4, 5]), training=True)
    assert np.isfinite(estimator.loss()(tf.constant([0, 1, 2, 29]), logits))


def test_updates_of_observed_classes_are_those_of_the_loss_without_the_drawn_classes():
    labels, features = tf.constant([3, 5, 5]), tf.reshape(tf.linspace(-1.0, 2.0, 6), [3, 2])
    found = []
    for loss in (likelihood.ObservedClassesOnly(), BernoulliNormalizationLoss("batch")):
        keras.utils.set_random_seed(4)
        output = LargeOutput(9, BernoulliSampler(6, np.ones(9), seed=3))
        with tf.GradientTape() as tape:
            value = loss(labels, output(features, training=True))
        gradient = tape.gradient(value, output.trainable_variables[0])
        found.append((value, tf.convert_to_tensor(gradient)))
    (own_value, own), (value, rows) = found
    np.testing.assert_allclose(own_value, value)
    observed = np.isin(np.arange(9), labels)
    np.testing.assert_allclose(own, np.where(observed[:, np.newaxis], rows, 0))
    assert np.abs(rows[~observed]).max() > 0.01


@pytest.mark.slow
def test_methods_are_trained_and_the_exact_one_has_distance_zero(tmp_path, monkeypatch):
    parts = functools.partial(dataclasses.replace, points_per_epoch=2)
    monkeypatch.setitem(likelihood.PROBLEMS, "toy", lambda *given: parts(small(*given)))
    arguments = f"--grid 0.1 --epochs 2 --seeds 1 2 --num-sampled 5 --json {tmp_path}/l.json "
    arguments += f"--png {tmp_path}/l.png --estimators ranking_1"
    likelihood.main(arguments.split())
    runs = json.loads((tmp_path / "l.json").read_text())["runs"]
    assert [run["estimator"] for run in runs] == 2 * ["exact", "ranking_1"]
    for run in runs:
        assert len(run["points"]) == 4
        for point in run["points"]:
            assert set(point) == set(likelihood.FIGURES)
            assert (point["from_exact"] == 0) == (run["estimator"] == "exact")
    assert (tmp_path / "l.png").stat().st_size > 10_000


@pytest.mark.slow  # draws the pictures; the other slow tests train
def test_the_command_of_the_note_makes_its_files(tmp_path, monkeypatch):
    for name in likelihood.PROBLEMS:
        monkeypatch.setitem(likelihood.PROBLEMS, name, small)
    random = np.random.default_rng(0)
    learned = lambda *_: [np.log(random.dirichlet(np.ones(30), 200))]  # noqa: E731
    monkeypatch.setattr(likelihood, "train", learned)
    monkeypatch.setattr(own_process, "call", lambda function, *given: function(*given))
    figures = ("trained_steps", "cpu_seconds", "p1", "p5", "top5", "loss")
    ranked = lambda run, _: {"title": run["method"], **dict.fromkeys(figures, 1.0)}  # noqa: E731
    monkeypatch.setattr(training, "train", ranked)
    monkeypatch.chdir(tmp_path)
    __main__.main(["--seeds", "1"])
    kept = {path.name for path in (tmp_path / "benchmark-results").iterdir()}
    listed = {path.name for path in NOTE.iterdir() if path.suffix in (".json", ".png")}
    assert listed <= kept
