"""Names of our classes for Keras: in files, and in `compile`."""

import subprocess
import sys

import keras
import numpy as np
import pytest

import tf_largeout as tflo
from tests.slow import slow_but
from tf_largeout import keras_names

X, Y = np.random.default_rng(0).normal(size=(6, 4)), np.arange(6)
OPTIMIZERS = ["lazy_adam", "lazy_adagrad", "rowwise_adagrad", "lazy_sgd"]
RANK_KINDS = ["precision", "recall", "hit_rate", "ndcg", "mean_reciprocal_rank"]


def compiled(**kwargs):
    output = tflo.layers.LargeOutput(30, sampler=tflo.samplers.UniformSampler(8, seed=1))
    model = keras.Sequential([keras.Input((4,)), output])
    model.compile(run_eagerly=True, **kwargs)
    return model


def test_all_classes_that_keras_saves_are_registered_without_their_import():
    for name in ("callbacks", "datasets", "distribute", "retrieval", "serving"):
        getattr(tflo, name)
    expected = {
        name: getattr(getattr(tflo, module), name)
        for module, names in keras_names.CLASSES.items()
        for name in names
    }
    registered = {
        name.partition(">")[2]: member
        for name, member in keras.saving.get_custom_objects().items()
        if name.startswith("tf_largeout>") and "Converted" not in name  # by `convert`
    }
    assert registered == expected


IMPORTS_ONLY = """
import sys
import numpy as np
import keras
import tf_largeout
assert not any(name.startswith("tf_largeout.layers") for name in sys.modules)
assert set(dir(tf_largeout)) >= {"layers", "convert", "join_models", "__version__"}
assert not hasattr(tf_largeout, "no_such")
model = keras.models.load_model(sys.argv[1])
x, y = np.load(sys.argv[2]), np.arange(6)
print([float(one) for one in model.evaluate(x, y, verbose=0)])
from tf_largeout.conversion import convert
assert tf_largeout.convert is convert and callable(tf_largeout.join_models)
"""


def test_a_file_is_loaded_after_the_import_of_the_package_alone(tmp_path):
    metrics = [tflo.metrics.RecallAtK(3), "ndcg_at_10"]
    model = compiled(optimizer="lazy_adam", loss="sampled_softmax_loss", metrics=metrics)
    model.fit(X, Y, verbose=0)
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "x.npy", X)
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS_ONLY, tmp_path / "model.keras", tmp_path / "x.npy"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = [float(one) for one in done.stdout.strip().splitlines()[-1][1:-1].split(",")]
    assert found == pytest.approx(model.evaluate(X, Y, verbose=0))


# Each class has its own tests, and the next test checks all names.
@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_model_compiled_by_names_trains_and_is_saved(optimizer, tmp_path):
    names = ["perplexity", "precision_at_1", "recall_at_5", "mean_reciprocal_rank"]
    model = compiled(optimizer=optimizer, loss="sampled_softmax_loss", metrics=names)
    history = model.fit(X, Y, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert keras.utils.get_registered_name(type(model.optimizer)).startswith("tf_largeout>")
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    found = model.evaluate(X, Y, verbose=0, return_dict=True)
    assert set(found) == {"loss", *names}
    assert loaded.evaluate(X, Y, verbose=0, return_dict=True) == pytest.approx(found)


def test_losses_metrics_and_optimizers_have_names():
    for module, getter, names in (
        (tflo.losses, keras.losses.get, ["nce_loss", "z_loss", "black_out_loss"]),
        (tflo.metrics, keras.metrics.get, ["perplexity", "ndcg", "mean_average_precision"]),
        (tflo.optimizers, keras.optimizers.get, OPTIMIZERS),
    ):
        for name in names:
            assert type(getter(name)).__name__ in module.__all__
    for loss in keras_names.CLASSES["losses"]:
        assert type(keras.losses.get(keras_names.snake_case(loss))).__name__ == loss


@pytest.mark.parametrize("k", slow_but([5], [1, 5, 10]))
@pytest.mark.parametrize("kind", [*RANK_KINDS, "mean_average_precision"])
def test_metrics_of_the_k_best_classes_have_names(kind, k):
    metric = keras.metrics.get(f"{kind}_at_{k}")
    assert (metric.kind, metric.k, metric.name) == (kind, k, f"{kind}_at_{k}")


def test_names_of_keras_are_not_replaced():
    losses, metrics = {"nce_loss": "of Keras"}, {"perplexity": "of Keras"}
    keras_names.register_for_compile(losses, metrics)
    assert losses["nce_loss"] == metrics["perplexity"] == "of Keras"
    assert len(losses) == 17 and len(metrics) == 4 + 6 * 3


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["spherical_softmax_loss", "taylor_softmax_loss", "z_loss"])
def test_a_loss_of_the_spherical_family_by_name_trains(loss):
    model = keras.Sequential([keras.Input((4,)), tflo.layers.FactoredOutput(30, 0.1)])
    model.compile("lazy_sgd", loss, run_eagerly=True)
    found = model.fit(X, Y, epochs=3, verbose=0).history["loss"]
    assert found[-1] < found[0]
