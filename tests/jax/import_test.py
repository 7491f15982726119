"""The import under Keras's JAX backend: names, errors, and no TensorFlow."""

import importlib
import json
import os
import subprocess
import sys
import zipfile

import keras
import pytest

import tf_largeout as tflo
from tests.source_tree import ROOT
from tf_largeout import keras_names

MODULES = ["layers", "losses", "metrics", "optimizers", "retrieval", "samplers"]
SUPPORTED = {
    "layers": {"LargeOutput"},
    "losses": {"DecoupledSoftmaxLoss", "NCELoss", "SampledSoftmaxLoss", "SoftmaxLoss"},
    "metrics": {
        *("HitRateAtK", "MeanAveragePrecision", "MeanReciprocalRank", "NDCG", "Perplexity"),
        *("PrecisionAtK", "RecallAtK"),
    },
    "optimizers": {"LazyAdam", "RowwiseAdagrad"},
    "samplers": {"LogUniformSampler", "TopKSampler", "UniformSampler", "UnigramSampler"},
}


def message_of(function, *arguments):
    with pytest.raises(ImportError) as caught:
        function(*arguments)
    return str(caught.value)


def imported(program, **environment):
    """Runs a program in a new process. Returns the process."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("module", MODULES)
def test_the_modules_have_the_names_of_the_tensorflow_backend(module):
    found = __import__(f"tf_largeout.{module}", fromlist=["x"])
    assert found is getattr(tflo, module) is sys.modules[f"tf_largeout.jax.{module}"]
    for name in keras_names.CLASSES.get(module, ()):
        if name in SUPPORTED[module]:
            registered = keras.saving.get_registered_object(f"tf_largeout>{name}")
            assert getattr(found, name) is registered
        else:
            message = message_of(getattr, found, name)
            assert f"tf_largeout.{module}.{name} needs" in message
            assert "set KERAS_BACKEND=tensorflow" in message
            assert "With the JAX backend, use " in message


def test_retrieval_has_the_function_only():
    assert callable(tflo.retrieval.predict_top_k)
    assert "use predict_top_k" in message_of(getattr, tflo.retrieval, "HnswIndex")


def test_all_other_public_names_need_tensorflow():
    names = set(dir(tflo)) - {*MODULES, "__version__"}
    assert names >= {"callbacks", "convert", "datasets", "ops", "papers", "resize_classes"}
    for name in names:
        assert f"tf_largeout.{name} needs Keras's" in message_of(getattr, tflo, name)


@pytest.mark.parametrize("module", ["serving", "steps.step", "conversion"])
def test_modules_that_need_tensorflow_are_not_imported(module):
    assert "needs Keras's TensorFlow backend" in message_of(__import__, f"tf_largeout.{module}")


def test_the_package_can_be_imported_again():
    assert importlib.reload(tflo).layers.LargeOutput


def test_unknown_names_are_attribute_errors():
    for owner, name in (
        (tflo, "no_such"),
        (tflo.losses, "no_such"),
        (tflo.losses, "__wrapped__"),
    ):
        assert not hasattr(owner, name)
    with pytest.raises(ModuleNotFoundError, match="No module named 'tf_largeout.no_such'"):
        __import__("tf_largeout.no_such")


def test_compile_accepts_names():
    assert isinstance(keras.losses.get("nce_loss"), tflo.losses.NCELoss)
    assert isinstance(keras.metrics.get("ndcg_at_10"), tflo.metrics.NDCG)
    assert isinstance(keras.optimizers.get("lazy_adam"), tflo.optimizers.LazyAdam)
    for get, name in ((keras.losses.get, "z_loss"), (keras.optimizers.get, "lazy_sgd")):
        assert "needs Keras's TensorFlow backend" in message_of(get, name)


@pytest.mark.parametrize(
    ("kind", "name", "config"),
    [
        ("samplers", "LSHSampler", {"num_sampled": 8}),
        ("losses", "RankingLoss", {}),
        ("optimizers", "LazySGD", {"learning_rate": 0.1}),
    ],
)
def test_a_file_with_an_unsupported_part_says_so(tmp_path, kind, name, config):
    path = tmp_path / "model.keras"
    model = keras.Sequential([keras.Input([4]), tflo.layers.LargeOutput(9, "uniform")])
    model.compile("lazy_adam", "sampled_softmax_loss")
    model.save(path)
    replace_in_file(path, {"class_name": name, "config": config}, kind)
    message = message_of(keras.models.load_model, path)
    assert f"tf_largeout.{kind}.{name} needs Keras's TensorFlow backend" in message
    if kind != "samplers":
        assert "compile=False" in message
        assert keras.models.load_model(path, compile=False).layers[-1].num_classes == 9


def replace_in_file(path, serialized, kind):
    """Replaces the sampler, loss or optimizer in the config of a saved model."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(files["config.json"])
    name = serialized["class_name"]
    serialized = {**serialized, "module": "x", "registered_name": f"tf_largeout>{name}"}
    if kind == "samplers":
        config["config"]["layers"][-1]["config"]["sampler"] = serialized
    else:
        config["compile_config"][{"losses": "loss"}.get(kind, "optimizer")] = serialized
    files["config.json"] = json.dumps(config)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def test_keras_json_selects_the_backend(tmp_path):
    (tmp_path / "keras.json").write_text(json.dumps({"backend": "jax"}))
    program = (
        "import sys, tf_largeout; assert 'tensorflow' not in sys.modules; tf_largeout.layers"
    )
    done = imported(program, KERAS_BACKEND="", KERAS_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("backend", "said"),
    [
        ("", ["needs TensorFlow", "set KERAS_BACKEND=jax"]),
        ("tensorflow", ["needs TensorFlow", "set KERAS_BACKEND=jax"]),
        ("torch", ["KERAS_BACKEND=jax"]),
    ],
)
def test_other_backends_are_errors_that_name_jax(tmp_path, backend, said):
    program = "import sys; sys.modules['tensorflow'] = None; import tf_largeout"
    done = imported(program, KERAS_BACKEND=backend, KERAS_HOME=str(tmp_path))
    assert done.returncode != 0
    assert all(part in done.stderr.splitlines()[-1] for part in said)
