"""Losses, metrics and optimizers by their names in `compile`."""

import itertools

import keras
import numpy as np
import pytest

import tf_largeout as tflo
from tests.slow import slow_but
from tf_largeout import keras_names

LOSSES = [
    "softmax_loss",
    "sampled_softmax_loss",
    "nce_loss",
    "negative_sampling_loss",
    "absolute_softmax_loss",
    "importance_normalization_loss",
    "bernoulli_normalization_loss",
    "ranking_loss",
    "black_out_loss",
    "decoupled_softmax_loss",
    "sigmoid_loss",
]
SPHERICAL_LOSSES = [
    "spherical_softmax_loss",
    "squared_error_loss",
    "taylor_softmax_loss",
    "z_loss",
]
# For other layers and arguments of layers than those of `compiled`.
OTHER_LOSSES = ["hierarchical_softmax_loss", "margin_softmax_loss"]
METRICS = ["perplexity", "ndcg", "mean_reciprocal_rank", "mean_average_precision"]
AT_K = ["precision", "recall", "hit_rate", *METRICS[1:]]
OPTIMIZERS = ["lazy_adam", "lazy_adagrad", "rowwise_adagrad", "lazy_sgd"]
PAIRS = list(zip(LOSSES, itertools.cycle(OPTIMIZERS)))


def compiled(**kwargs):
    output = tflo.layers.LargeOutput(30, sampler=tflo.samplers.UniformSampler(8, seed=1))
    model = keras.Sequential([keras.Input((4,)), output])
    model.compile(run_eagerly=True, **kwargs)
    return model


# Each class has its own tests, and the next test checks all names.
@pytest.mark.parametrize(
    "loss, optimizer", slow_but([("sampled_softmax_loss", "lazy_adagrad")], PAIRS)
)
def test_a_model_compiled_by_names_trains_and_is_saved(loss, optimizer, tmp_path):
    model = compiled(optimizer=optimizer, loss=loss, metrics=["perplexity"])
    x, y = np.random.default_rng(0).normal(size=(6, 4)), np.arange(6)
    history = model.fit(x, y, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert keras.utils.get_registered_name(type(model.optimizer)).startswith("tf_largeout>")
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.evaluate(x, y, verbose=0, return_dict=True) == pytest.approx(
        model.evaluate(x, y, verbose=0, return_dict=True)
    )


def test_every_class_without_arguments_has_a_name():
    for module, names in (
        (tflo.losses, [*LOSSES, *SPHERICAL_LOSSES, *OTHER_LOSSES]),
        (tflo.metrics, METRICS),
        (tflo.optimizers, OPTIMIZERS),
    ):
        classes = keras_names._classes_by_name(module)
        assert set(classes) == set(names)
        keras_module = getattr(keras, module.__name__.rpartition(".")[2])
        for name, one in classes.items():
            assert type(keras_module.get(name)) is one
            registered = keras.utils.get_registered_name(type(keras_module.get(name)))
            assert registered.startswith("tf_largeout>")


def test_a_name_of_a_loss_gives_a_loss_of_this_package():
    assert isinstance(keras.losses.get("nce_loss"), tflo.losses.NCELoss)
    assert isinstance(keras.metrics.get("perplexity"), tflo.metrics.Perplexity)
    assert isinstance(keras.optimizers.get("lazy_sgd"), tflo.optimizers.LazySGD)


@pytest.mark.parametrize("k", [1, 10, 100, 1000])
@pytest.mark.parametrize("kind", AT_K)
def test_metrics_of_the_k_best_classes_have_names(kind, k):
    metric = keras.metrics.get(f"{kind}_at_{k}")
    assert (metric.kind, metric.k, metric.name) == (kind, k, f"{kind}_at_{k}")


def test_a_model_compiled_by_names_of_metrics_is_saved(tmp_path):
    names = ["precision_at_2", "recall_at_5", "ndcg_at_10", "mean_reciprocal_rank"]
    model = compiled(optimizer="sgd", loss="sampled_softmax_loss", metrics=names)
    x, y = np.random.default_rng(0).normal(size=(6, 4)), np.arange(6)
    found = model.evaluate(x, y, verbose=0, return_dict=True)
    assert set(found) == {"loss", *names}
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.evaluate(x, y, verbose=0, return_dict=True) == pytest.approx(found)


def test_names_of_keras_are_not_replaced(monkeypatch):
    class Perplexity(tflo.metrics.Perplexity):
        """Stands for a Keras class."""

    table = {"perplexity": Perplexity}
    monkeypatch.setitem(keras.metrics.get.__globals__, "ALL_OBJECTS_DICT", table)
    keras_names.register()
    assert table["perplexity"] is Perplexity


def test_without_the_table_of_keras_only_names_are_missing(monkeypatch):
    table = {}
    monkeypatch.delitem(keras.losses.get.__globals__, "ALL_OBJECTS_DICT")
    monkeypatch.setitem(keras.metrics.get.__globals__, "ALL_OBJECTS_DICT", table)
    keras_names.register()
    assert table["perplexity"] is tflo.metrics.Perplexity


@pytest.mark.slow
@pytest.mark.parametrize("loss", slow_but(["taylor_softmax_loss"], SPHERICAL_LOSSES))
def test_a_loss_of_the_spherical_family_by_name_trains(loss):
    model = keras.Sequential([keras.Input((4,)), tflo.layers.FactoredOutput(30, 0.1)])
    model.compile("lazy_sgd", loss, run_eagerly=True)
    x, y = np.random.default_rng(0).normal(size=(6, 4)), np.arange(6)
    found = model.fit(x, y, epochs=3, verbose=0).history["loss"]
    assert found[-1] < found[0]
