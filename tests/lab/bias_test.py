import json

import numpy as np
import pytest
import tensorflow as tf

from lab.blanc_rendle import bias
from lab.shared import language_model_case
from lab.shared.language_model_case import Setting
from tests.lab import brown
from tf_largeout import losses


@pytest.fixture(autouse=True)
def text(tmp_path, monkeypatch):
    brown.provide(tmp_path, monkeypatch)


@pytest.mark.slow
def test_runs_are_kept_plotted_and_not_repeated(tmp_path):
    titles = ["full", "unigram", "kernel tree, absolute softmax"]
    arguments = [*brown.SMALL, "--epochs", "2", "--points", "2", "--num-sampled", "4"]
    arguments += ["--distributions", *titles, "--validation-fraction", "0.3"]
    arguments += ["--out", str(tmp_path / "out"), "--json", str(tmp_path / "bias.json")]
    report = bias.main(arguments)
    numbers = [(run["title"], run["num_sampled"]) for run in report["runs"]]
    assert numbers == [
        (title, number) for title, number in zip(titles, [12, 4, 4], strict=True)
    ]
    for run in report["runs"]:
        assert len(run["validation_perplexity"]) == 2 and run["optimizer"] == "lazy_sgd"
        assert 1 < run["test_perplexity"] < 20 and np.all(np.array(run["steps"]) > 2)
    assert json.loads((tmp_path / "bias.json").read_text())["runs"] == report["runs"]
    assert (tmp_path / "out" / "bias.png").stat().st_size > 1000
    assert bias.main(arguments)["runs"] == report["runs"]  # with their times


@pytest.mark.parametrize("name", ["full", "full, absolute softmax"])
def test_the_full_softmax_has_the_exact_loss_and_sparse_gradients(name):
    distribution = bias.DISTRIBUTIONS[name]
    setting = Setting(
        sampler=distribution.sampler,
        num_sampled=12,
        absolute=distribution.absolute,
        width=8,
        length=6,
        vocabulary=12,
    )
    data = language_model_case.load(setting)
    model = language_model_case.build_model(data, setting)
    words, labels = next(iter(data.train))
    with tf.GradientTape() as tape:
        value = model.loss(labels, model(words, training=True))
    rows = tape.gradient(value, model.layers[-1].embeddings.value)
    assert isinstance(rows, tf.IndexedSlices)
    assert set(np.unique(rows.indices)) == set(range(12))
    if not distribution.absolute:
        model.layers[2].rate = 0.0  # no dropout, for comparison
        logits = model(words, training=True)
        found, exact = (
            loss(labels, logits) for loss in (losses.SampledSoftmaxLoss(), losses.SoftmaxLoss())
        )
        np.testing.assert_allclose(found, exact, rtol=1e-5)
