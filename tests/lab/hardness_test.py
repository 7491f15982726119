import json

import numpy as np
import pytest
import tensorflow as tf

from lab.negatives import hardness
from tests import harness
from tests.reference.hardness import hardness_of_example
from tf_largeout.samplers import HeadAndTail, SampledValues, UniformSampler


def test_figures_equal_the_formula():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=[4, 30]).astype("float32")
    labels = np.array([[0, -1], [3, 4], [29, -1], [7, 1]])
    ids = np.stack([rng.permutation(30)[:6] for _ in labels])
    ids[:, -1] = -1
    expected = [
        hardness_of_example(i, o, y) for i, o, y in zip(ids, logits, labels, strict=True)
    ]
    figures = hardness.figures_of(ids, logits, labels)
    np.testing.assert_allclose(list(figures.values()), np.mean(expected, axis=0), rtol=1e-6)


def test_all_classes_give_the_exact_partition_function_and_a_tenth_does_not():
    rng = np.random.default_rng(0)
    rows, features = rng.normal(size=[40, 8]), rng.normal(size=[20, 8]).astype("float32")
    errors = []
    for num_sampled in (40, 4):
        head = harness.built_head(rows, np.zeros(40), UniformSampler(num_sampled, seed=1))
        labels = tf.constant(rng.integers(0, 40, [20, 2]))
        sample = head.sampler.sample(features, labels, head)
        errors.append(
            hardness.figures_of_loss(head, [sample] * 2, tf.constant(features), labels)
        )
    every_class, one_in_ten = errors
    for figure in ("partition error", "gradient bias", "gradient error"):
        assert every_class[figure] < 1e-4 < 0.1 < one_in_ten[figure]
    assert 1 <= one_in_ten["effective sample"] <= 4 < every_class["effective sample"] <= 40


def test_errors_of_gradients_match_their_distribution():
    rng = np.random.default_rng(0)
    exact, bias = rng.normal(size=[50, 6]), rng.normal(size=[50, 6]) / 10
    draws = exact + bias + rng.normal(size=[2000, 50, 6]) / 2
    of_mean, of_one = hardness.gradient_errors(draws, exact)
    scale = np.mean(np.sum(exact**2, axis=1))
    squared_bias = np.mean(np.sum(bias**2, axis=1))
    np.testing.assert_allclose(of_mean, np.sqrt(squared_bias / scale), rtol=0.01)
    np.testing.assert_allclose(of_one, np.sqrt((squared_bias + 6 / 4) / scale), rtol=0.01)


def test_a_class_of_head_and_tail_counts_once():
    head = SampledValues(np.array([[1, 2], [5, -1]]), None, None)
    tail = SampledValues(np.array([2, 5, 7]), None, None)
    ids = hardness.own_ids(HeadAndTail(head, tail), 2)
    assert [sorted(row[row >= 0]) for row in ids] == [[1, 2, 5, 7], [2, 5, 7]]


@pytest.mark.slow
def test_the_highest_logits_are_the_hardest_negatives(tmp_path):
    arguments = "--task synthetic --seconds 0.2 --points 1 --num-sampled 100 --sample 20 "
    arguments += "--samplers uniform frequency lsh_embedding inverted_file top_k "
    arguments += f"--json {tmp_path}/h.json --png {tmp_path}/h.png"
    hardness.main(arguments.split())
    (point,) = json.loads((tmp_path / "h.json").read_text())["points"]
    by_name = point["samplers"]
    for figure, sign in (("mean logit", 1), ("softmax mass", 1), ("median rank", -1)):
        best = max(by_name, key=lambda name: sign * by_name[name][figure])
        assert best == "top_k"
    assert by_name["top_k"]["median rank"] == 49
    assert all(np.isfinite(list(figures.values())).all() for figures in by_name.values())
    assert (tmp_path / "h.png").stat().st_size > 10_000
