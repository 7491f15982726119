"""Exports with class rows in 8 bits per number."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.reference.quantized_rows import quantized
from tests.slow import slow_but
from tf_largeout import layers, serving
from tf_largeout.retrieval import InvertedFileIndex

N, DIM, K = 400, 24, 7
X = np.random.default_rng(0).normal(size=(5, DIM)).astype("float32")
HEADS = {
    "plain": {},
    "normalized": {"normalize": True, "scale": 3.0},
    "bfloat16": {"embeddings_dtype": "bfloat16"},
    "capped": {"logit_soft_cap": 2.0},
    "shards": {"num_shards": 3, "use_bias": False},
    "absolute": {"ranking": "absolute"},
}


def _model(**options):
    keras.utils.set_random_seed(3)
    bias = {} if "use_bias" in options else {"bias_initializer": "random_normal"}
    head = layers.LargeOutput(N, embeddings_initializer="normal", **bias, **options)
    return keras.Sequential([keras.Input([DIM], name="x"), head])


def _expected(model):
    """Returns the same model with rounded rows."""
    head = model.layers[-1]
    rounded = quantized(head.class_embeddings())
    options = {"normalize", "scale", "num_shards", "embeddings_dtype"}
    config = {name: one for name, one in head.get_config().items() if name not in options}
    other = layers.LargeOutput.from_config(config | {"embeddings_initializer": "zeros"})
    model = keras.Sequential([keras.Input([DIM]), other])
    other.embeddings.assign(rounded)
    if head.use_bias:
        other.bias.assign(head.bias)
    return other


def _served(folder, signature="serving_default"):
    return tf.saved_model.load(str(folder)).signatures[signature]


@pytest.mark.parametrize(
    "name, ops",
    slow_but(
        [("plain", "custom")],
        itertools.product(HEADS, ["core", "custom"]),
    ),
)
def test_an_export_in_int8_equals_the_layer_with_rounded_rows(name, ops, tmp_path):
    model = _model(**HEADS[name])
    sizes = serving.export(model, tmp_path / "1", k=K, ops=ops, embeddings_dtype="int8")
    assert sizes["weights"] < N * (DIM + 8 + 24 * (ops == "custom")) + 6_000 < 4 * N * DIM
    scores, ids = _expected(model).top_k(model.layers[-1].queries(X), K)
    found = _served(tmp_path / "1")(x=X)
    np.testing.assert_array_equal(found["ids"], ids)
    # Rows in bfloat16 have numbers halfway between two integers, which may be rounded up or
    # down.
    atol = 5e-3 if name == "bfloat16" else 1e-6
    np.testing.assert_allclose(found["scores"], scores, rtol=1e-4, atol=atol)


@pytest.mark.slow
@pytest.mark.parametrize("ops", slow_but(["custom"], ["core", "custom"]))
def test_probabilities_and_exclusions_use_the_rounded_rows(ops, tmp_path):
    model = _model()
    serving.export(
        model, tmp_path / "1", k=K, ops=ops, embeddings_dtype="int8", scores="softmax"
    )
    exclude = np.tile([[3, 4, 5]], (5, 1))
    expected = _expected(model).top_k(X, 4, exclude, scores="softmax")
    found = _served(tmp_path / "1", "top_k")(
        x=X, k=tf.constant(4), exclude=tf.constant(exclude, tf.int64)
    )
    np.testing.assert_array_equal(found["ids"], expected[1])
    np.testing.assert_allclose(found["scores"], expected[0], rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("ops", slow_but(["core"], ["core", "custom"]))
def test_an_index_finds_classes_by_the_rounded_rows(ops, tmp_path):
    model = _model()
    head = model.layers[-1]
    index = InvertedFileIndex(num_lists=10, num_probes=10).build(
        head.class_embeddings(), head.bias
    )
    serving.export(model, tmp_path / "1", k=3, index=index, ops=ops, embeddings_dtype="int8")
    scores, ids = _expected(model).top_k(X, 3)
    found = _served(tmp_path / "1")(x=X)
    np.testing.assert_array_equal(found["ids"], ids)
    np.testing.assert_allclose(found["scores"], scores, rtol=1e-4, atol=1e-6)


def test_other_dtypes_and_scores_that_are_not_products_raise_an_error(tmp_path):
    with pytest.raises(ValueError, match="must be 'int8', or None.*Received: .*'int4'"):
        serving.export(_model(), tmp_path / "1", embeddings_dtype="int4")
    model = keras.Sequential([keras.Input([DIM]), layers.HierarchicalOutput(N)])
    with pytest.raises(ValueError, match="not inner products. Received.*int8"):
        serving.export(model, tmp_path / "1", embeddings_dtype="int8")
    assert not list(tmp_path.iterdir())
