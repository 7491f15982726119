import json

import keras
import numpy as np
import pytest

from benchmarks.harness import own_process
from lab.shared import epochs
from lab.shared.falling_rates import FallingRates
from tf_largeout.layers import FactoredOutput
from tf_largeout.losses import ZLoss

SMALL = "--task synthetic --sample 100 --set dim=8 --set batch_size=64 --set num_sampled=32"


@pytest.fixture
def in_this_process(monkeypatch):
    monkeypatch.setattr(own_process, "call", lambda function, *given: function(*given))


@pytest.mark.slow
def test_methods_train_for_the_same_number_of_epochs(in_this_process, tmp_path):
    arguments = [*SMALL.split(), "--methods", "z", "uniform", "--epochs", "0.2"]
    arguments += ["--seeds", "0", "1", "--out", str(tmp_path)]
    report = epochs.main(arguments)
    steps = round(0.2 * 18_000 / 64)
    assert [(run["method"], run["seed"], run["steps"]) for run in report["runs"]] == [
        (method, seed, steps) for seed in (0, 1) for method in ("z", "uniform")
    ]
    assert all(0 <= run["p1"] <= 100 and run["loss"] > 0 for run in report["runs"])
    assert json.loads((tmp_path / "epochs.json").read_text()) == report
    assert epochs.main(arguments)["runs"] == report["runs"]  # with their times: not repeated


@pytest.mark.slow
def test_the_same_seed_gives_the_same_figures(in_this_process, tmp_path):
    command = [*SMALL.split(), "--methods", "z", "--epochs", "0.05", "--out"]
    first, second = (
        epochs.main([*command, str(tmp_path / name)])["runs"][0] for name in ("a", "b")
    )
    no_times = {"seconds": 0, "cpu_seconds": 0}
    assert {**first, **no_times} == {**second, **no_times}


@pytest.mark.slow
def test_joined_models_have_different_seeds_and_are_tested_as_one(
    in_this_process, tmp_path, monkeypatch
):
    joined = []

    def second_of(models):
        joined.extend(models)
        return models[1]

    monkeypatch.setattr(epochs, "join_models", second_of)
    command = [*SMALL.split(), "--methods", "uniform", "--epochs", "0.05", "--seeds", "1"]
    run = epochs.main([*command, "--joined", "2", "--out", str(tmp_path)])["runs"][0]
    settings = {"dim": 8, "batch_size": 64, "num_sampled": 32}
    alone = epochs.train("synthetic", "uniform", 0.05, 3, settings, 100, False)
    assert len(joined) == 2
    assert run["steps"] == 2 * alone["steps"]
    assert run["cpu_seconds"] > 0
    assert run["loss"] == alone["loss"]


@pytest.mark.slow
def test_all_rates_fall_linearly():
    head = FactoredOutput(20, 2.0)
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(4), head])
    model.compile(keras.optimizers.SGD(0.1), ZLoss())
    rates = []

    class Notes(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            rates.append((float(model.optimizer.learning_rate), head.learning_rate))

    features = np.random.default_rng(0).standard_normal([40, 4]).astype("float32")
    labels = np.arange(40) % 20
    callbacks = [FallingRates(5), Notes()]
    model.fit(features, labels, batch_size=8, callbacks=callbacks, verbose=0)
    shares = np.array([0.8, 0.6, 0.4, 0.2, 0.2])  # the last step sets no new rate
    expected = shares[:, None] * [0.1, 2.0]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)
