"""Requests at and beyond the limits of an export, for both kinds of ops."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.serving import models
from tests.slow import slow_but
from tf_largeout import layers, serving
from tf_largeout.retrieval import InvertedFileIndex

LAYERS = {
    "large": models.head,
    "sharded": lambda: models.head(num_shards=3),
    "factored": lambda: layers.FactoredOutput(models.N, 0.5, bias_initializer="random_normal"),
    "hierarchical": lambda: layers.HierarchicalOutput(models.N),
    "indexed": models.head,
}
KINDS = [f"{name} {ops}" for name in LAYERS for ops in ("core", "custom")]
SHORT = ["large core", "factored custom"]


@pytest.fixture(scope="module", params=slow_but(SHORT, KINDS))
def exported(request, tmp_path_factory):
    """Returns the signatures of an export, and its layer, whose features are the input."""
    name, ops = request.param.split()
    keras.utils.set_random_seed(2)
    layer, index = LAYERS[name](), None
    model = keras.Sequential([keras.Input([models.DIM]), layer])
    if name == "indexed":
        index = InvertedFileIndex(num_probes=10**6)
        index.build(layer.class_embeddings(), layer.bias)
    path = str(tmp_path_factory.mktemp("export") / "1")
    serving.export(model, path, k=models.K, index=index, ops=ops)
    return tf.saved_model.load(path).signatures, layer


@pytest.mark.parametrize("number", slow_but([np.inf, -3e38], [np.nan, np.inf, -3e38, 1e38]))
@pytest.mark.parametrize("signature", ["serving_default", "top_k"])
def test_an_example_that_overflows_has_no_classes_and_changes_no_other_example(
    signature, number, exported
):
    signatures, layer = exported
    features = models.X.copy()
    features[2] = number
    more = {} if signature == "serving_default" else {"k": tf.constant(models.K)}
    if more:
        more["exclude"] = tf.fill([1, 1], tf.constant(-1, tf.int64))
    found = signatures[signature](features=tf.constant(features), **more)
    expected = models.best(np.asarray(layer(models.X), np.float64))
    expected["scores"][2], expected["ids"][2] = -np.inf, -1
    models.assert_same(found, expected)


def test_large_features_with_finite_scores_have_results(exported):
    signatures, layer = exported
    features = np.float32(1e30) * models.X
    found = signatures["serving_default"](features=tf.constant(features))
    assert np.isfinite(found["scores"]).all()
    scores, ids = layer.top_k(features, models.K)
    np.testing.assert_allclose(found["scores"], scores, rtol=1e-5)
    assert (found["ids"] == ids).numpy().mean() > 0.9


@pytest.mark.parametrize("k", [0, 1, models.N])
def test_k_can_be_from_zero_to_all_classes(k, exported):
    signatures, layer = exported
    logits = np.asarray(layer(models.X), np.float64)
    exclude = np.argsort(-logits)[:, :2]
    answer = signatures["top_k"](
        features=tf.constant(models.X), k=tf.constant(k), exclude=tf.constant(exclude)
    )
    models.assert_same(answer, models.best(logits, k, exclude))


@pytest.mark.parametrize("k", [-1, models.N + 1, 2**31 - 1])
def test_a_k_out_of_range_raises_an_error_that_states_the_limit(k, exported):
    signatures, _ = exported
    with pytest.raises(tf.errors.InvalidArgumentError, match="from 0 to the number") as error:
        signatures["top_k"](
            features=tf.constant(models.X),
            k=tf.constant(k),
            exclude=tf.zeros([1, 0], tf.int64),
        )
    assert str(models.N) in str(error.value) and str(k) in str(error.value)


def test_exclude_may_have_one_row_and_ids_of_no_class(exported):
    signatures, layer = exported
    logits = np.asarray(layer(models.X), np.float64)
    answer = signatures["top_k"](
        features=tf.constant(models.X),
        k=tf.constant(models.K),
        exclude=tf.constant([[models.N, 3, -7, 2**40]], tf.int64),
    )
    models.assert_same(answer, models.best(logits, models.K, [[3]] * len(logits)))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"one row per example.*\[2\]"):
        signatures["top_k"](
            features=tf.constant(models.X),
            k=tf.constant(1),
            exclude=tf.zeros([2, 1], tf.int64),
        )


@pytest.mark.slow
def test_zero_weights_support_features_up_to_the_largest_float(tmp_path):
    head = layers.LargeOutput(models.N, embeddings_initializer="zeros")
    model = keras.Sequential([keras.Input([models.DIM]), head])
    serving.export(model, tmp_path / "1", k=1)
    signature = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    rows = [[number] + 7 * [0.0] for number in (0.0, 3e38, np.inf)]
    np.testing.assert_array_equal(
        signature(features=tf.constant(rows))["ids"], [[0], [0], [-1]]
    )
