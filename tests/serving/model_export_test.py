"""Keras's exports have logits of all classes; those of an archive have no state of training."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import replicas
from tests.samplers.sampler_table import SAMPLERS
from tests.serving import host, models
from tests.slow import slow_but
from tf_largeout import layers, losses, optimizers

N, DIM = 3_000, 8
# One of each kind of state.
KINDS = ["uniform", "unigram", "bernoulli", "bigram", "top_k and tail", "softmax", "lsh"]
KINDS += ["inverted_file", "inverted_file draws", "kernel_tree", "kernel_tree, projected"]
HEADS = {
    "no sampler": lambda: layers.LargeOutput(N),
    **{
        name: lambda name=name: layers.LargeOutput(N, SAMPLERS[name](N, num_sampled=16))
        for name in KINDS
    },
    "factored": lambda: layers.FactoredOutput(N, 0.5),
}
ROW = 4 * (DIM + 1)  # Bytes per class with its bias.


def built(head):
    return keras.Sequential([keras.Input([DIM]), keras.layers.Dense(DIM), head])


def exported(model, folder):
    """Returns the logits for `models.X` of an export of the model."""
    model.export(folder, verbose=False)
    loaded = tf.saved_model.load(str(folder))
    return loaded.serve(tf.constant(models.X))


def archived(model, folder):
    """Returns the size of the file of variables of an archive, and the logits."""
    archive = keras.export.ExportArchive()
    archive.add_endpoint("serve", model.__call__, [tf.TensorSpec([None, DIM])])
    archive.write_out(folder, verbose=False)
    loaded = tf.saved_model.load(str(folder))
    size = sum(one.stat().st_size for one in (folder / "variables").iterdir())
    return size, loaded.serve(tf.constant(models.X))


@pytest.mark.parametrize("name", slow_but(["lsh", "factored"], HEADS))
def test_an_archive_has_the_class_weights_once_and_no_training_state(name, tmp_path):
    model = built(HEADS[name]())
    size, logits = archived(model, tmp_path / "model")
    assert N * ROW < size < 1.06 * N * ROW
    np.testing.assert_allclose(logits, model(models.X), rtol=1e-5, atol=1e-6)
    saved = tf.train.list_variables(str(tmp_path / "model" / "variables" / "variables"))
    assert sum(shape == [N, DIM] or shape == [N, DIM + 1] for _, shape in saved) == 1


def test_an_archive_contains_the_clusters_of_a_hierarchical_output(tmp_path):
    model = built(layers.HierarchicalOutput(N))
    size, logits = archived(model, tmp_path / "model")
    values = [one.value for one in model.weights]
    assert size < 1.06 * sum(one.dtype.size * one.shape.num_elements() for one in values)
    np.testing.assert_allclose(logits, model(models.X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", slow_but(["lsh"], HEADS))
def test_an_export_of_a_model_has_its_logits(name, tmp_path):
    model = built(HEADS[name]())
    logits = exported(model, tmp_path / "model")
    np.testing.assert_allclose(logits, model(models.X), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_the_model_keeps_its_training_state(tmp_path):
    model = models.new_model("hash_tables")
    before = {one.path: one.numpy() for one in model.variables}
    assert any("sampler_" in path for path in before)
    model.export(tmp_path / "model", verbose=False)
    model.save(tmp_path / "model.keras")
    tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    for one in model.weights:
        if one.dtype != "string":
            one.assign(tf.zeros_like(one.value))
    tf.train.Checkpoint(model=model).read(str(tmp_path / "checkpoint")).assert_consumed()
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for other in (model, loaded):
        found = [one.numpy() for one in other.layers[-1].variables]
        expected = [value for path, value in before.items() if "large_output" in path]
        assert len(found) == len(expected)
        for one, value in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, value)


@pytest.mark.slow
def test_a_session_without_python_computes_the_logits(tmp_path):
    model = models.new_model("inverted_file")
    model.export(tmp_path / "model", verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    (name,) = loaded.structured_input_signature[1]
    answer = host.run(host.build(), tmp_path / "model", "serving_default", {name: models.X})
    (found,) = answer.values()
    expected = models.logits_of(model, "inverted_file")
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_tied_tables_and_nested_models_are_exported(tmp_path):
    inner = models.new_model("tied")
    inputs = keras.Input([3], dtype="int32")
    model = keras.Model(inputs, inner(inputs))
    model.export(tmp_path / "model", verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    found = loaded.serve(tf.constant(models.IDS))
    np.testing.assert_allclose(found, models.logits_of(model, "tied"), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_model_trained_on_replicas_is_exported(tmp_path):
    with replicas.two_replicas().scope():
        model = models.dense(models.head("uniform"))
        model.compile(optimizers.LazyAdam(0.1), losses.SampledSoftmaxLoss())
    model.fit(models.X[:4], np.arange(4), verbose=0)
    logits = exported(model, tmp_path / "model")
    np.testing.assert_allclose(logits, model(models.X), rtol=1e-5, atol=1e-6)
