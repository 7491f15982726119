"""Probabilities as scores of `predict_top_k` and exports, compared with those of all logits."""

import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.serving import models
from tests.slow import slow_but
from tf_largeout import layers, losses, serving
from tf_largeout.papers.factored.factored_output import log_of_square
from tf_largeout.retrieval import InvertedFileIndex, LSHIndex, predict_top_k

N, DIM, X, K = models.N, models.DIM, models.X, models.K
FUNCTIONS = {"softmax": tf.nn.softmax, "sigmoid": tf.sigmoid}
top_k = functools.partial(predict_top_k, verbose=0)


@pytest.fixture(scope="module")
def model():
    return models.new_model("large")


def of_logits(model, scores, k=K, exclude=None, allowed=None):
    """Returns the best classes and their probabilities among all classes, 0 at padding."""
    logits = np.asarray(model(X))
    shown = logits
    if allowed is not None:
        shown = np.where(np.isin(np.arange(N), allowed), logits, -np.inf)
    ids = models.best(shown, k, exclude)["ids"]
    found = np.take_along_axis(FUNCTIONS[scores](logits).numpy(), np.maximum(ids, 0), axis=1)
    return np.where(ids >= 0, found, 0), ids


def index_of(model):
    """Returns an index that finds all classes."""
    head = model.layers[-1]
    return InvertedFileIndex(num_probes=N).build(head.class_embeddings(), head.bias)


def assert_equal(found, expected):
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[0], expected[0], rtol=2e-6, atol=1e-12)


@pytest.mark.parametrize("scores", slow_but(["softmax"], FUNCTIONS))
def test_probabilities_are_those_among_all_classes_whatever_is_hidden(model, scores):
    exclude = models.excluded(models.logits_of(model, "large"), -1)
    for kwargs in ({}, {"k": 9, "exclude": exclude, "allowed": np.arange(0, 60, 9)}):
        expected = of_logits(model, scores, **kwargs)
        kwargs = {"k": K, **kwargs}
        assert_equal(top_k(model, X, scores=scores, **kwargs), expected)
        assert_equal(top_k(model, X, scores=scores, index=index_of(model), **kwargs), expected)


@pytest.mark.parametrize(
    ("scores", "ops", "has_index"),
    slow_but(
        [("softmax", "core", True)],
        itertools.product(FUNCTIONS, ["core", "custom"], [False, True]),
    ),
)
def test_the_signatures_return_probabilities(model, scores, ops, has_index, tmp_path):
    index, allowed = None, None
    if has_index:  # without a class that is among the best
        removed = models.best(models.logits_of(model, "large"), 1)["ids"][:1, 0]
        index, allowed = index_of(model), np.setdiff1d(np.arange(N), removed)
        index.remove(removed)
    serving.export(model, tmp_path / "1", K, index, ops, scores=scores)
    served = tf.saved_model.load(str(tmp_path / "1")).signatures
    features = np.concatenate([X, np.full((1, DIM), np.nan, "float32")])
    found = served["serving_default"](features=tf.constant(features))
    found = found["scores"].numpy(), found["ids"].numpy()
    assert_equal([one[:-1] for one in found], of_logits(model, scores, allowed=allowed))
    assert (found[0][-1] == 0).all() and (found[1][-1] == -1).all()
    exclude = found[1][:-1, :2]
    found = served["top_k"](
        features=tf.constant(X), k=tf.constant(3), exclude=tf.constant(exclude)
    )
    expected = of_logits(model, scores, 3, exclude, allowed)
    assert_equal((found["scores"].numpy(), found["ids"].numpy()), expected)


def softmax_of_found(logits, ids):
    """Equation 1 of Vijayanarasimhan et al. 2015 over the classes found; 0 at padding."""
    terms = np.exp(np.take_along_axis(logits, np.maximum(ids, 0), axis=1)) * (ids >= 0)
    return terms / np.maximum(terms.sum(axis=1, keepdims=True), 1e-300)


@pytest.mark.slow
@pytest.mark.parametrize("ops", slow_but(["custom"], ["core", "custom"]))
def test_the_softmax_over_the_top_k_is_that_of_the_classes_found(model, ops, tmp_path):
    head, logits = model.layers[-1], models.logits_of(model, "large")
    index = LSHIndex(40, hash="wta", num_tables=20, num_hashes=1, bin_size=4)
    index.build(head.class_embeddings(), head.bias)
    exclude = models.excluded(logits, -1)
    for kwargs in ({}, {"index": index}, {"exclude": exclude, "allowed": [1, 2, 3, 9]}):
        kwargs |= {"scores": "top_k_softmax"}
        found, ids = top_k(model, X, K, **kwargs)
        np.testing.assert_allclose(found, softmax_of_found(logits, ids), rtol=1e-5)
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)
    served_index = index if ops == "custom" else None
    serving.export(model, tmp_path / "1", K, served_index, ops, scores="top_k_softmax")
    served = tf.saved_model.load(str(tmp_path / "1")).signatures
    everything = np.tile(np.arange(N), (len(X), 1))
    for k, hidden in ((3, exclude), (0, exclude), (2, everything)):
        found = served["top_k"](
            features=tf.constant(X), k=tf.constant(k), exclude=tf.constant(hidden)
        )
        expected = softmax_of_found(logits, found["ids"].numpy())
        np.testing.assert_allclose(found["scores"], expected, rtol=1e-5)
    features = np.concatenate([X, np.full((1, DIM), np.nan, "float32")])
    found = served["serving_default"](features=tf.constant(features))
    expected = softmax_of_found(np.concatenate([logits, logits[:1]]), found["ids"].numpy())
    np.testing.assert_allclose(found["scores"], expected, rtol=1e-5)
    assert not np.any(found["scores"][-1]) and np.all(found["ids"][-1] == -1)


@pytest.mark.parametrize("loss", [losses.SphericalSoftmaxLoss(0.7), losses.TaylorSoftmaxLoss()])
def test_the_softmax_over_the_top_k_of_a_factored_output_is_that_of_its_loss(loss):
    head = layers.FactoredOutput(N, 0.1, embeddings_initializer="random_normal")
    head.build((None, DIM))
    head.follow(loss)
    among_all, ids = head.top_k(X, K, scores="softmax")
    among_found, same = head.top_k(X, K, scores="top_k_softmax")
    np.testing.assert_array_equal(ids, same)
    share = among_all / tf.reduce_sum(among_all, axis=1, keepdims=True)
    np.testing.assert_allclose(among_found, share, rtol=1e-5)


def test_padding_and_empty_batches_have_probability_0():
    table = keras.layers.Embedding(N, DIM, mask_zero=True)
    words = np.array([[3, 0], [0, 0]])
    sequences = keras.Sequential(
        [keras.Input([2], dtype="int32"), table, layers.LargeOutput(N, "uniform")]
    )
    found, ids = top_k(sequences, words, N, positions="last", scores="softmax")
    np.testing.assert_allclose(found.sum(axis=1), [1, 0], rtol=1e-5)
    assert (ids[1] == -1).all()
    assert top_k(sequences, words[:0], 3, scores="softmax")[0].shape == (0, 2, 3)


def test_probabilities_of_large_logits_are_finite_and_at_most_1():
    rows = np.random.default_rng(0).normal(size=(N, 3)) * 1e4
    head = layers.LargeOutput(N, embeddings_initializer=rows)
    head.build((None, 3))
    features = np.random.default_rng(1).normal(size=(50, 3)).astype("float32")
    found = head.top_k(features, N, scores="softmax")[0].numpy()
    assert found.max() <= 1
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-4)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 30.0])
def test_the_logarithm_of_squares_does_not_overflow(epsilon):
    scores = np.float32([0, 1e-30, 1e-3, 0.5, 1, 7, 1e25])
    expected = np.log(np.float64(scores) ** 2 + epsilon)
    np.testing.assert_allclose(log_of_square(epsilon)(scores), expected, rtol=1e-6, atol=1e-6)


def test_the_config_keeps_the_epsilon_of_the_loss():
    head = layers.FactoredOutput(N, 0.1, embeddings_initializer="random_normal")
    head.build((None, DIM))
    head.follow(losses.SphericalSoftmaxLoss(0.7))
    copied = layers.FactoredOutput.from_config(head.get_config())
    copied.build((None, DIM))
    copied.set_weights(head.get_weights())
    found, ids = (one.numpy() for one in copied.top_k(X, N, scores="softmax"))
    weights = np.asarray(head(X), np.float64) ** 2 + 0.7
    expected = np.take_along_axis(weights / weights.sum(axis=1, keepdims=True), ids, axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "scores", "message"),
    [
        (layers.LargeOutput, "probability", "`scores` must be one of .*probability"),
        (
            functools.partial(layers.LargeOutput, ranking="absolute"),
            "sigmoid",
            "ranks them by 'absolute'.*Use scores='softmax'",
        ),
        (layers.HierarchicalOutput, "sigmoid", "log-probabilities.*Use scores='softmax'"),
        (
            functools.partial(layers.FactoredOutput, learning_rate=0.1),
            "sigmoid",
            "trained one-vs-all.*Use scores='softmax'",
        ),
        (
            functools.partial(layers.FactoredOutput, learning_rate=0.1, ranking="absolute"),
            "softmax",
            "`epsilon` of the SphericalSoftmaxLoss.*Use scores='logit'",
        ),
    ],
)
def test_probabilities_that_a_layer_does_not_define_raise_an_error(
    make, scores, message, tmp_path
):
    model = keras.Sequential([keras.Input([DIM]), make(N)])
    for use in (
        lambda: model.layers[-1].top_k(X, 3, scores=scores),
        lambda: top_k(model, X, 3, scores=scores),
        lambda: serving.export(model, tmp_path / "1", 3, scores=scores),
    ):
        with pytest.raises(ValueError, match=message):
            use()
