"""Custom exports with an `LSHIndex`, compared with its search in Python."""

import itertools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.reference import losses as reference
from tests.serving import models
from tests.slow import slow_but
from tf_largeout import serving
from tf_largeout.retrieval import LSHIndex, predict_top_k

NUM_CANDIDATES = 20
HASHES = {
    "wta": {"hash": "wta", "num_tables": 30, "num_hashes": 1, "bin_size": 4},
    "simhash": {"num_tables": 30, "num_hashes": 2},
    "dwta": {"hash": "dwta", "num_tables": 30, "num_hashes": 2, "bin_size": 2},
}


@pytest.fixture(scope="module")
def model():
    return models.new_model("large")


def index_of(model, removed, **kwargs):
    embeddings, bias = model.layers[-1].class_matrix.as_products()
    index = LSHIndex(**{"num_candidates": NUM_CANDIDATES, **kwargs}).build(embeddings, bias)
    index.remove(removed)
    return index


def signatures_of(model, index, folder):
    serving.export(model, folder, k=models.K, index=index, ops="custom")
    return tf.saved_model.load(str(folder)).signatures


@pytest.mark.slow
@pytest.mark.parametrize(
    "hash, removed",
    slow_but([("wta", [3, 5])], itertools.product(HASHES, [[], [3, 5]])),
)
def test_an_exported_index_finds_what_the_index_finds(model, hash, removed, tmp_path):
    index = index_of(model, removed, **HASHES[hash])
    signatures = signatures_of(model, index, tmp_path / "1")
    queries, inputs = model.layers[0](models.X), {"features": tf.constant(models.X)}
    found = signatures["serving_default"](**inputs)
    expected = index.top_k(queries, models.K)
    np.testing.assert_array_equal(found["ids"], expected[1])
    np.testing.assert_allclose(found["scores"], expected[0], rtol=1e-5)
    logits = models.logits_of(model, "large")
    assert np.any(found["ids"] != models.best(logits)["ids"])  # the search is approximate
    exclude = models.excluded(logits)
    known = np.where(exclude < models.N, exclude, -1)  # the index refuses unknown ids
    for k in (1, 4, NUM_CANDIDATES):
        found = signatures["top_k"](k=tf.constant(k), exclude=tf.constant(exclude), **inputs)
        expected = index.top_k(queries, k, exclude=known)
        np.testing.assert_array_equal(found["ids"], expected[1])
        np.testing.assert_allclose(found["scores"], expected[0], rtol=1e-5)
    # A larger k scores all classes, except removed ones.
    logits[:, removed] = -np.inf
    for k in (NUM_CANDIDATES + 1, models.N):
        found = signatures["top_k"](k=tf.constant(k), exclude=tf.constant(exclude), **inputs)
        models.assert_same(found, models.best(logits, k, exclude))
    none = tf.zeros([1, 0], tf.int64)
    assert signatures["top_k"](k=tf.constant(0), exclude=none, **inputs)["ids"].shape == (5, 0)


def test_an_index_whose_candidates_are_all_classes_is_exact(model, tmp_path):
    index = index_of(model, [3], num_candidates=models.N)
    signatures = signatures_of(model, index, tmp_path / "1")
    logits = models.logits_of(model, "large")
    logits[:, 3] = -np.inf
    found = signatures["serving_default"](features=tf.constant(models.X))
    models.assert_same(found, models.best(logits))


def test_the_export_contains_the_tables_and_the_class_rows_once(model, tmp_path):
    index = index_of(model, [], **HASHES["wta"])
    serving.export(model, tmp_path / "1", k=models.K, index=index, ops="custom")
    saved = tf.train.list_variables(str(tmp_path / "1" / "variables" / "variables"))
    shapes = [tuple(shape) for _, shape in saved]
    assert shapes.count((models.N, models.DIM)) == 1
    assert shapes.count((30, models.N)) == 1 and (30 * 4,) in shapes


def test_an_index_of_other_rows_raises_an_error(model, tmp_path):
    index = index_of(model, [], **HASHES["wta"])
    index.update([4], np.ones([1, models.DIM], "float32"))
    with pytest.raises(ValueError, match="with other embeddings or biases"):
        serving.export(model, tmp_path / "1", index=index, ops="custom")


@pytest.mark.slow
@pytest.mark.parametrize("num_hard", [None, 8])
def test_a_logistic_output_is_trained_evaluated_and_served_with_wta_hashes(num_hard, tmp_path):
    """Vijayanarasimhan et al. 2015, equation 2; without a tail only the classes found count."""
    n, dim, wta = 60, 8, {"hash": "wta", "num_tables": 30, "num_hashes": 1, "bin_size": 4}
    sampler = tflo.samplers.LSHSampler(16, form="frequent", num_hard=num_hard, tables=wta)
    start = keras.initializers.Constant(-math.log(n))
    head = tflo.layers.LargeOutput(n, sampler, bias_initializer=start)
    model = keras.Sequential([keras.Input([dim], name="features"), head])
    loss = tflo.losses.SigmoidLoss if num_hard else tflo.losses.NegativeSamplingLoss
    model.compile(tflo.optimizers.LazyAdam(0.03), loss())
    labels = np.arange(600) % n
    x = np.random.default_rng(0).normal(size=[n, dim]).astype("float32")[labels]
    before = model.predict(x[:n], verbose=0)
    model.fit(x, labels, epochs=5, verbose=0)
    rows, bias = head.class_embeddings().numpy(), head.bias.numpy()
    exact = reference.full_sigmoid(x[:n], rows, bias, labels[:n, np.newaxis]).mean()
    untrained = np.logaddexp(0, before).sum(axis=1) - np.diagonal(before)
    assert exact < untrained.mean()
    if num_hard:
        np.testing.assert_allclose(model.evaluate(x[:n], labels[:n], verbose=0), exact, 1e-5)

    index = LSHIndex(20, **wta).build(rows, bias)
    scores, ids = predict_top_k(model, x, 3, index=index, scores="sigmoid", verbose=0)
    logits = np.take_along_axis(x @ rows.T + bias, ids, axis=1)
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-logits)), rtol=1e-4)
    serving.export(model, tmp_path / "1", 3, index, "custom", scores="sigmoid")
    signatures = tf.saved_model.load(str(tmp_path / "1")).signatures
    answer = signatures["serving_default"](features=tf.constant(x))
    np.testing.assert_array_equal(answer["ids"], ids)
    np.testing.assert_allclose(answer["scores"], scores, rtol=1e-5)
