"""The best classes of features, and of the inputs of a model, against a sort of all logits."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import scipy.sparse

from tests.reference import filtered_top_k as reference
from tf_largeout.jax.layers import LargeOutput
from tf_largeout.jax.retrieval import predict_top_k

N, K = 50, 5
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(7, 6)).astype("float32")
IDS = np.array([[1, 2, 3, 0], [4, 0, 0, 0], [0, 0, 0, 0], [5, 6, 0, 0]])
EXCLUDE = RANDOM.integers(-1, N, (7, 9))
ALLOWED = set(range(0, N, 3))


def output(**kwargs):
    return LargeOutput(N, embeddings_initializer="random_normal", **kwargs)


@pytest.fixture(scope="module")
def model():
    dense = keras.layers.Dense(8)
    options = {"normalize": True, "logit_soft_cap": 30.0, "bias_initializer": "random_normal"}
    return keras.Sequential([keras.Input((6,)), dense, output(**options)])


@pytest.fixture(scope="module")
def sequences():
    inputs = keras.Input((4,), dtype="int32")
    embedded = keras.layers.Embedding(9, 8, mask_zero=True)(inputs)
    inner = keras.Model(inputs, output()(embedded))
    return keras.Model(inputs, inner(inputs))


def assert_found(found, logits, exclude=None, allowed=None, k=K):
    logits = np.asarray(logits, "float64")
    flat = logits.reshape(-1, N)
    expected = reference.top_k(flat, k, exclude, allowed)
    shape = (*logits.shape[:-1], k)
    np.testing.assert_array_equal(found[1], expected[1].reshape(shape))
    np.testing.assert_allclose(found[0], expected[0].reshape(shape), rtol=1e-5, atol=1e-5)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, place):
        part = X[3 * place : 3 * place + 3]
        return part, np.zeros(len(part))


def test_all_inputs_of_predict_are_accepted(model):
    logits = model.predict(X, verbose=0)
    scores, ids = predict_top_k(model, X, K, batch_size=3, verbose=0)
    assert (scores.dtype, ids.dtype) == ("float32", "int64")
    assert_found((scores, ids), logits)
    assert_found(predict_top_k(model, Batches(), K, verbose=0), logits)
    assert_found(
        predict_top_k(model, X, K, EXCLUDE, ALLOWED, verbose=0), logits, EXCLUDE, ALLOWED
    )
    assert predict_top_k(model, X[:0], K, verbose=0)[1].shape == (0, K)
    inputs = {name: keras.Input((6,), name=name) for name in "ab"}
    both = keras.Model(inputs, model(inputs["a"] + inputs["b"]))
    found = predict_top_k(both, {"a": X, "b": 0 * X}, K, EXCLUDE, verbose=0)
    assert_found(found, logits, EXCLUDE)


def test_sequences_give_all_positions_or_the_last_ones(sequences):
    logits = sequences.predict(IDS, verbose=0)
    assert_found(predict_top_k(sequences, IDS, K, verbose=0), logits)
    scores, ids = predict_top_k(sequences, IDS, K, EXCLUDE[:4], positions="last", verbose=0)
    last = logits[np.arange(4), [2, 0, 0, 1]]
    rows = [0, 1, 3]
    assert_found((scores[rows], ids[rows]), last[rows], EXCLUDE[rows])
    assert (ids[2] == -1).all() and (scores[2] == -np.inf).all()


def test_a_layer_finds_its_best_classes(model):
    layer, features = model.layers[-1], model.layers[0](X)
    logits = layer(features)
    some = np.where(np.eye(7, N), 1, 0)
    rows = [[b] for b in range(7)]
    assert_found(layer.top_k(features, K), logits)
    assert_found(layer.top_k(features, K, [[]] * 7), logits)
    assert_found(
        layer.top_k(features, N + 2, EXCLUDE, ALLOWED), logits, EXCLUDE, ALLOWED, N + 2
    )
    assert_found(layer.top_k(features, K, scipy.sparse.csr_matrix(some)), logits, rows)
    assert_found(layer.top_k(features[0], K, [3, 3]), logits[:1].reshape(N), [[3]])
    in_jit = jax.jit(lambda features, ids: layer.top_k(features, K, ids))
    assert_found(in_jit(features, jnp.asarray(EXCLUDE)), logits, EXCLUDE)
    scores, ids = in_jit(features.at[1, 0].set(jnp.nan), jnp.asarray(EXCLUDE))
    assert np.isnan(scores[1]).all() and (ids[1] == -1).all() and (ids[2] >= 0).all()


OF_LAYER = {
    "k": (dict(k=0), "`k` must be an integer of at least 1"),
    "width": (dict(features=np.zeros((2, 7))), "`features` must be inputs of layer"),
    "nan": (dict(features=np.full((2, 8), np.nan)), "features must be finite"),
    "mask": (dict(exclude=np.zeros((2, N), bool)), "`exclude` must be integer"),
    "rows": (dict(exclude=[1, 2]), "`exclude` must have a row"),
    "range": (dict(exclude=[[1], [N]]), r"`exclude` must be class ids in \[0, 50\), or -1"),
    "columns": (dict(exclude=scipy.sparse.eye(2, 9)), "one column per class, 50"),
    "allowed": (dict(allowed=[3, -1]), r"`allowed` must be class ids in \[0, 50\). Rec"),
    "matrix": (dict(allowed=[[3], [4]]), "`allowed` must be a vector"),
}


@pytest.mark.parametrize("name", OF_LAYER)
def test_wrong_arguments_of_a_layer_raise_an_error(model, name):
    arguments, message = OF_LAYER[name]
    with pytest.raises(ValueError, match=message):
        model.layers[-1].top_k(**{"features": np.zeros((2, 8)), "k": 3, **arguments})


OF_MODEL = {
    "index": (dict(index=1), "TensorFlow backend"),
    "scores": (dict(scores="softmax"), "TensorFlow backend"),
    "model": (dict(model=3), "needs a keras.Model"),
    "other model": (
        dict(model=keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])),
        "direct output",
    ),
    "positions": (dict(positions="first"), "`positions` must be one of"),
    "last": (dict(positions="last"), "needs a model of sequences"),
    "batch size": (dict(batch_size=0), "`batch_size` must be"),
    "batches": (dict(x=Batches(), exclude=EXCLUDE), "requires arrays as `x`"),
    "rows": (dict(exclude=EXCLUDE[:3]), "a list of ids for each example"),
    "range": (dict(exclude=EXCLUDE + 1), r"`exclude` must be class ids in \[0, 50\)"),
    "nan": (dict(x=X * np.nan), "features must be finite"),
}


@pytest.mark.parametrize("name", OF_MODEL)
def test_wrong_arguments_raise_an_error(model, name):
    arguments, message = OF_MODEL[name]
    with pytest.raises(ValueError, match=message):
        predict_top_k(**{"model": model, "x": X, "k": K, "verbose": 0, **arguments})
    assert np.isfinite(model.predict(X, verbose=0)).all()  # It has kept its weights.


def test_predictions_hold_no_logits(model):
    layer = LargeOutput(100_000)
    layer.build((None, 16))

    def best(features):
        return layer.top_k(features, K)

    features = jax.ShapeDtypeStruct((512, 16), "float32")
    memory = jax.jit(best).lower(features).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 512 * 100_000 * 4 / 8
