"""Contents of an export, and errors of invalid arguments."""

import itertools
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import replicas
from tests.serving import models
from tests.slow import slow_but
from tf_largeout import layers, losses, optimizers, samplers, serving


def saved_model_text(folder):
    """Returns the graph of a SavedModel as `saved_model_cli` prints it."""
    command = [sys.executable, "-m", "tensorflow.python.tools.saved_model_cli"]
    done = subprocess.run(
        [*command, "show", "--dir", str(folder), "--all"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def saved_model_bytes(folder):
    """Returns the bytes of the graph, which contain the names of ops and functions."""
    return (folder / "saved_model.pb").read_bytes()


def ops_of(folder, signature):
    """Returns the op types of a signature and of all functions that it calls."""
    function = tf.saved_model.load(str(folder)).signatures[signature]
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *(n for one in graph.library.function for n in one.node_def)]
    return {node.op for node in nodes}


@pytest.mark.parametrize("ops", slow_but(["custom"], ["core", "custom"]))
def test_only_the_custom_export_contains_our_op(ops, tmp_path):
    serving.export(models.new_model("large"), tmp_path / "1", ops=ops)
    for signature in ("serving_default", "top_k"):
        expected = {"core": "TopKV2", "custom": "LargeoutClassTopK"}[ops]
        assert expected in ops_of(tmp_path / "1", signature)
    assert (b"Largeout" in saved_model_bytes(tmp_path / "1")) == (ops == "custom")


@pytest.mark.slow
def test_saved_model_cli_lists_the_signatures(tmp_path):
    serving.export(models.new_model("strings"), tmp_path / "1", k=7)
    text = saved_model_text(tmp_path / "1")
    default, top_k = (
        text.split(f"signature_def['{name}']")[1].split("Method name")[0]
        for name in ("serving_default", "top_k")
    )
    for said in ("inputs['title']", "DT_STRING", "outputs['scores']", "shape: (-1, 7)"):
        assert said in default
    for said in ("inputs['title']", "inputs['k']", "inputs['exclude']", "outputs['ids']"):
        assert said in top_k


def test_the_export_has_default_values_of_k_and_exclude(tmp_path):
    from tensorflow.core.protobuf import saved_model_pb2

    serving.export(models.new_model("large"), tmp_path / "1", k=7)
    saved = saved_model_pb2.SavedModel.FromString(saved_model_bytes(tmp_path / "1"))
    defaults = saved.meta_graphs[0].signature_def["top_k"].defaults
    assert tf.make_ndarray(defaults["k"]) == 7
    assert tf.make_ndarray(defaults["exclude"]).shape == (1, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler, ops",
    slow_but(
        [("lsh", "custom")],
        itertools.product(["kernel_tree", "lsh", None], ["core", "custom"]),
    ),
)
def test_the_export_is_not_larger_than_the_weights(sampler, ops, tmp_path, capsys):
    model = keras.Sequential(
        [keras.Input([64]), keras.layers.Dense(64), layers.LargeOutput(20_000, sampler)]
    )
    weights = sum(4 * np.prod(one.shape) for one in model.trainable_weights)
    sizes = serving.export(model, tmp_path / "1", ops=ops)
    on_disk = sum(one.stat().st_size for one in (tmp_path / "1").rglob("*") if one.is_file())
    assert sizes["total"] == on_disk == sum(sizes.values()) - sizes["total"]
    assert weights <= sizes["weights"] and on_disk <= 1.05 * weights
    assert "MiB" in (printed := capsys.readouterr().out) and str(tmp_path / "1") in printed


def test_a_shared_table_is_exported_once(tmp_path):
    serving.export(models.new_model("tied"), tmp_path / "1")
    saved = tf.train.list_variables(tmp_path / "1" / "variables" / "variables")
    shapes = [tuple(shape) for _, shape in saved]
    assert shapes.count((models.N, models.DIM)) == 1


@pytest.mark.slow
def test_an_export_does_not_change_the_model(tmp_path):
    model = models.new_model("hash_tables")
    before = [one.numpy().tobytes() for one in model.variables]
    serving.export(model, tmp_path / "1")
    assert [one.numpy().tobytes() for one in model.variables] == before
    models.fit(model)


@pytest.mark.slow
def test_a_mixed_precision_export_equals_its_layer(tmp_path):
    model = keras.Sequential([keras.Input([models.DIM]), models.head(dtype="mixed_bfloat16")])
    serving.export(model, tmp_path / "1", k=models.K)
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    found = loaded.signatures["serving_default"](features=tf.constant(models.X))
    features = tf.cast(models.X, tf.bfloat16)  # The input of the layer, which ranks in float32.
    scores, ids = model.layers[-1].top_k(features, models.K)
    models.assert_same(found, {"scores": scores, "ids": ids})


@pytest.mark.slow
def test_a_mixed_precision_model_without_an_input_takes_float32(tmp_path):
    dense = keras.layers.Dense(models.DIM, dtype="mixed_bfloat16")
    model = keras.Sequential([dense, models.head()])
    model(models.X)
    assert model.inputs[0].dtype == "bfloat16"  # which JSON and NumPy do not have
    serving.export(model, tmp_path / "1", k=models.K)
    served = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    found = served(features=tf.constant(models.X))
    scores, ids = model.layers[-1].top_k(model.layers[0](models.X), models.K)
    models.assert_same(found, {"scores": scores, "ids": ids})


@pytest.mark.slow
def test_a_model_trained_on_replicas_is_exported(tmp_path):
    with replicas.two_replicas().scope():
        model = models.dense(models.head(samplers.UniformSampler(32)))
        model.compile(optimizers.LazyAdam(0.1), losses.SampledSoftmaxLoss())
    models.fit(model, rows=4)
    sizes = serving.export(model, tmp_path / "1", k=models.K)
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    found = loaded.signatures["serving_default"](features=tf.constant(models.X))
    models.assert_same(found, models.best(np.asarray(model(models.X))))
    assert sizes["weights"] < 1.3 * 4 * sum(np.prod(w.shape) for w in model.trainable_weights)


@pytest.mark.parametrize("ids", [{"k": 0}, {"k": 10.0}, {"k": models.N + 1}, {"ops": "fast"}])
def test_arguments_out_of_range_raise_an_error(ids, tmp_path):
    (name, value), *_ = ids.items()
    with pytest.raises(ValueError, match=f"`{name}` must be") as error:
        serving.export(models.new_model("large"), tmp_path / "1", **ids)
    assert str(value) in str(error.value)
    assert os.listdir(tmp_path) == []


def softmax_after(tmp_path):
    model = models.new_model("large")
    return keras.Model(model.inputs, keras.layers.Softmax()(model.outputs[0]))


def two_outputs(tmp_path):
    model = models.new_model("large")
    return keras.Model(model.inputs, {"one": model.outputs[0], "two": model.layers[0].output})


def stock_model(tmp_path):
    return keras.Sequential([keras.Input([models.DIM]), keras.layers.Dense(models.N)])


@pytest.mark.parametrize("new_model", [softmax_after, two_outputs, stock_model])
def test_a_model_with_another_output_raises_an_error(new_model, tmp_path):
    model = new_model(tmp_path)
    with pytest.raises(ValueError, match="one output, .* from a LargeOutput") as error:
        serving.export(model, tmp_path / "1")
    assert model.name in str(error.value)


def test_unsupported_inputs_raise_an_error(tmp_path):
    head = models.head()
    named = keras.Input([models.DIM], name="exclude")
    with pytest.raises(ValueError, match="'exclude'.* would occur twice"):
        serving.export(keras.Model(named, head(named)), tmp_path / "1")
    sparse = keras.Input([models.DIM], sparse=True)
    model = keras.Model(sparse, models.head()(keras.layers.Dense(models.DIM)(sparse)))
    with pytest.raises(ValueError, match="is sparse"):
        serving.export(model, tmp_path / "1")
    with pytest.raises(ValueError, match="is not built"):
        serving.export(keras.Sequential([models.head()]), tmp_path / "1")


@pytest.mark.parametrize("lost", [np.nan, np.inf])
def test_weights_that_are_not_finite_raise_an_error(lost, tmp_path):
    model = models.new_model("large")
    bias = np.zeros(models.N)
    bias[-1] = lost
    model.layers[-1].bias.assign(bias)
    with pytest.raises(ValueError, match="'bias' with NaN"):
        serving.export(model, tmp_path / "1")


def test_existing_files_are_not_overwritten(tmp_path):
    model, path = models.new_model("large"), tmp_path / "1"
    path.mkdir()
    of_a_killed_export, of_another = (tmp_path / f"1.{one}.unfinished" for one in "ab")
    of_another.mkdir()
    of_a_killed_export.mkdir()
    os.utime(of_a_killed_export, (0, 0))
    serving.export(model, path)  # An empty folder is allowed.
    assert {*tmp_path.iterdir()} == {path, of_another}
    before = {one: one.read_bytes() for one in path.rglob("*") if one.is_file()}
    with pytest.raises(FileExistsError, match="Use the next number"):
        serving.export(model, path)
    assert {one: one.read_bytes() for one in path.rglob("*") if one.is_file()} == before


def test_a_failed_export_leaves_no_files(tmp_path, monkeypatch):
    def fails(*arguments):
        os.makedirs(arguments[1])
        raise OSError("No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", fails)
    with pytest.raises(OSError, match="No space left"):
        serving.export(models.new_model("large"), tmp_path / "1")
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_a_truncated_export_does_not_load(tmp_path):
    serving.export(models.new_model("large"), tmp_path / "1")
    for name in ("saved_model.pb", "variables.index", "variables.data*"):
        (file,) = (tmp_path / "1").rglob(name)
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(
            (OSError, IndexError, tf.errors.OpError)
        ):  # As reported by TensorFlow.
            tf.saved_model.load(str(tmp_path / "1"))
        file.write_bytes(whole)
