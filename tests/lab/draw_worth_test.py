import json

import numpy as np
import pytest
import tensorflow as tf

from lab.kernel_trees import draw_worth
from tests import harness
from tf_largeout.samplers import KernelTreeSampler


def test_chi_is_the_variance_of_an_estimate_of_the_partition_function():
    rng = np.random.default_rng(0)
    logits, weights = rng.normal(size=[1, 9]), rng.uniform(1, 5, [1, 9])
    labels = np.array([[4, -1]])
    others = np.delete(np.arange(9), 4)
    q = weights[0, others] / weights[0, others].sum()
    drawn = rng.choice(8, size=200_000, p=q)
    estimates = np.exp(logits[0, others])[drawn] / q[drawn]
    relative = estimates / np.exp(logits[0, others]).sum()
    found = draw_worth.median_chi(logits, weights, labels)
    assert found == pytest.approx(1 + relative.var(), rel=0.02)
    assert draw_worth.median_chi(logits, np.exp(logits), labels) == pytest.approx(1)


def test_a_sampler_reports_the_probability_of_each_class(monkeypatch):
    monkeypatch.setattr(draw_worth, "_AT_ONCE", 50)  # in several parts
    rng = np.random.default_rng(0)
    rows, features = rng.normal(size=[40, 8]), tf.constant(rng.normal(size=[5, 8]), tf.float32)
    head = harness.built_head(rows, np.zeros(40), KernelTreeSampler(1, shared=False, seed=1))
    head.sampler.rebuild(head)
    found = draw_worth.probabilities_of(head, features)
    kernels = draw_worth.weights_of(head(features).numpy(), np.ones(40))["quadratic kernel"]
    np.testing.assert_allclose(found, kernels / kernels.sum(axis=1, keepdims=True), rtol=1e-4)


@pytest.mark.slow
def test_the_quartic_kernel_is_closest_to_the_softmax(tmp_path):
    path = tmp_path / "draw_worth.json"
    draw_worth.main(["--tasks", "synthetic", "--seconds", "1", "--json", str(path)])
    found = json.loads(path.read_text())["tasks"]["synthetic"]
    chi = found["chi"]
    assert found["steps"] > 0 and min(chi.values()) >= 1
    assert chi["quartic kernel"] < chi["uniform"]
