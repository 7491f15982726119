"""Models whose loss does not rank by logit: all results rank as the loss does."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.slow import slow_but
from tf_largeout import layers, losses, metrics

N, DIM, BATCH, K = 60, 8, 12, 5
RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((N, DIM)).astype("float32")
BIAS = RNG.standard_normal(N).astype("float32")
X = RNG.standard_normal((BATCH, DIM)).astype("float32")


def large():
    return layers.LargeOutput(
        N, "uniform", embeddings_initializer=ROWS, bias_initializer=BIAS, name="head"
    )


def factored():
    return layers.FactoredOutput(
        N, 1e-6, embeddings_initializer=ROWS, bias_initializer=BIAS, name="head"
    )


# The head, the loss, what ranks, and what probabilities are proportional to.
KINDS = {
    "logit": (large, losses.SampledSoftmaxLoss, lambda o: o, np.exp),
    "absolute": (large, losses.AbsoluteSoftmaxLoss, np.abs, lambda o: np.exp(np.abs(o))),
    "spherical": (factored, losses.SphericalSoftmaxLoss, np.abs, lambda o: o**2 + 0.1),
    "taylor": (
        factored,
        losses.TaylorSoftmaxLoss,
        lambda o: np.abs(1 + o),
        lambda o: 1 + o + o**2 / 2,
    ),
}
each_kind = pytest.mark.parametrize("kind", slow_but(["absolute", "taylor"], KINDS))


def new_model(kind):
    head, loss, _, _ = KINDS[kind]
    model = keras.Sequential([keras.Input([DIM], name="features"), head()])
    asked = [metrics.PrecisionAtK(1), metrics.RecallAtK(K), metrics.Perplexity()]
    model.compile(keras.optimizers.SGD(1e-6), loss(), metrics=asked, run_eagerly=True)
    return model


def trained(kind):
    model = new_model(kind)
    model.train_on_batch(X, np.arange(BATCH))
    return model


def logits_of(model):
    return model.predict(X, verbose=0).astype("float64")


def best(kind, model):
    """Scores and ids of the `K` best classes, by a sort."""
    scores = KINDS[kind][2](logits_of(model))
    ids = np.argsort(-scores, axis=1)[:, :K]
    return np.take_along_axis(scores, ids, axis=1), ids


def assert_best(found, kind, model):
    scores, ids = best(kind, model)
    np.testing.assert_allclose(found[0], scores, rtol=1e-4)
    np.testing.assert_array_equal(found[1], ids)


@each_kind
def test_top_k_ranks_classes_as_the_loss_does(kind):
    model = trained(kind)
    assert_best(model.layers[-1].top_k(X, K), kind, model)
    assert_best(tflo.retrieval.predict_top_k(model, X, K, verbose=0), kind, model)
    allowed = best(kind, model)[1].min(axis=0)  # any classes
    ids = model.layers[-1].top_k(X, 1, allowed=allowed)[1][:, 0]
    of_allowed = KINDS[kind][2](logits_of(model))[:, np.sort(allowed)]
    np.testing.assert_array_equal(ids, np.sort(allowed)[of_allowed.argmax(axis=1)])


@pytest.mark.parametrize(
    "kind, is_trained",
    slow_but([("absolute", True), ("taylor", False)], itertools.product(KINDS, [True, False])),
)
def test_metrics_rank_classes_as_the_loss_does(kind, is_trained):
    model = trained(kind) if is_trained else new_model(kind)
    labels = best(kind, model)[1][:, 0]
    labels[0] = best(kind, model)[1][0, K - 1]
    found = model.evaluate(X, labels, batch_size=5, verbose=0, return_dict=True)
    assert found["precision_at_1"] == pytest.approx((BATCH - 1) / BATCH)
    assert found["recall_at_5"] == 1
    probabilities = KINDS[kind][3](logits_of(model))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    loss = -np.log(probabilities[np.arange(BATCH), labels]).mean()
    assert found["loss"] == pytest.approx(loss, rel=1e-4)
    assert found["perplexity"] == pytest.approx(np.exp(loss), rel=1e-4)


@each_kind
def test_the_argument_absolute_overrides_the_loss(kind):
    model, labels = trained(kind), np.arange(BATCH)
    for absolute in (False, True):
        scores = np.abs(logits_of(model)) if absolute else logits_of(model)
        ids = model.layers[-1].top_k(X, 1, absolute=absolute)[1][:, 0]
        np.testing.assert_array_equal(ids, scores.argmax(axis=1))
        metric = metrics.PrecisionAtK(1, absolute=absolute)
        metric.update_state(scores.argmax(axis=1), model(X))
        assert metric.result() == 1
        perplexity = metrics.Perplexity(absolute=absolute)
        perplexity.update_state(labels, model(X))
        log_p = scores[labels, labels] - np.log(np.exp(scores).sum(axis=1))
        np.testing.assert_allclose(perplexity.result(), np.exp(-log_p.mean()), rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "ops"),
    slow_but([("taylor", "core")], itertools.product(KINDS, ["core", "custom"])),
)
def test_exports_rank_as_the_loss_does(kind, ops, tmp_path):
    model = trained(kind)
    tflo.serving.export(model, tmp_path / "1", k=K, ops=ops)
    signatures = tf.saved_model.load(str(tmp_path / "1")).signatures
    features = tf.constant(X)
    found = signatures["serving_default"](features=features)
    assert_best((found["scores"], found["ids"]), kind, model)
    excluded = found["ids"][:, :2]
    found = signatures["top_k"](features=features, k=tf.constant(K - 2), exclude=excluded)
    ids = best(kind, model)[1][:, 2:]
    np.testing.assert_array_equal(found["ids"], ids)


@pytest.mark.parametrize("kind", slow_but(["taylor"], KINDS))
def test_copies_and_saved_models_keep_the_ranking(kind, tmp_path):
    model = trained(kind)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    other = new_model(kind)
    other.load_weights(tmp_path / "model.weights.h5")
    for copy in (
        keras.models.load_model(tmp_path / "model.keras", compile=False),
        tflo.resize_classes(model, N),
        other,
    ):
        found = tflo.retrieval.predict_top_k(copy, X, K, verbose=0)
        assert_best(found, kind, model)


@pytest.mark.parametrize(
    "loss",
    slow_but(["absolute_softmax_loss"], ["absolute_softmax_loss", ["absolute_softmax_loss"]]),
)
def test_weights_loaded_into_a_compiled_model_rank_by_its_loss(loss, tmp_path):
    trained("absolute").save_weights(tmp_path / "model.weights.h5")
    model = keras.Sequential([keras.Input([DIM]), large()])
    model.compile("sgd", loss)
    model.load_weights(tmp_path / "model.weights.h5")
    assert_best(tflo.retrieval.predict_top_k(model, X, K, verbose=0), "absolute", model)


def test_the_last_loss_that_trains_defines_the_ranking():
    model = trained("absolute")
    model.compile("sgd", losses.SampledSoftmaxLoss(), metrics=[metrics.Perplexity()])
    found = model.evaluate(X, np.arange(BATCH), verbose=0, return_dict=True)
    assert model.layers[-1].ranking == "absolute"
    assert found["perplexity"] == pytest.approx(np.exp(found["loss"]), rel=1e-4)
    model.train_on_batch(X, np.arange(BATCH))
    assert model.layers[-1].ranking == "logit"


@pytest.mark.parametrize("kind", ["absolute", "taylor"])
def test_components_that_rank_only_by_logit_raise_an_error(kind, tmp_path):
    model = trained(kind)
    index = tflo.retrieval.BruteForceIndex().build(ROWS, BIAS)
    with pytest.raises(ValueError, match=f"'head' ranks classes by '{kind}'.*ranks by 'logit'"):
        tflo.retrieval.predict_top_k(model, X, K, index=index, verbose=0)
    with pytest.raises(ValueError, match="Omit `index`"):
        index = tflo.retrieval.InvertedFileIndex().build(ROWS, BIAS)
        tflo.serving.export(model, tmp_path / "1", index=index)


def test_the_argument_of_the_layer_precedes_the_loss():
    head = layers.LargeOutput(N, "uniform", ranking="logit")
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile("sgd", losses.AbsoluteSoftmaxLoss())
    model.train_on_batch(X, np.arange(BATCH))
    assert head.ranking == keras.models.clone_model(model).layers[-1].ranking == "logit"


def test_joining_models_that_rank_by_magnitude_raises_an_error():
    models = [trained("logit"), new_model("absolute")]
    with pytest.raises(ValueError, match="ranks classes by 'absolute'"):
        tflo.join_models(models)


@pytest.mark.parametrize(
    ("make", "ranking"),
    [
        (lambda **kwargs: layers.LargeOutput(N, **kwargs), "taylor"),
        (lambda **kwargs: layers.FactoredOutput(N, 1.0, **kwargs), "square"),
        (lambda **kwargs: layers.HierarchicalOutput(N, **kwargs), "absolute"),
    ],
)
def test_the_error_names_the_rankings_of_the_layer(make, ranking):
    with pytest.raises(ValueError, match=f"`ranking` of a .*Output must be.*{ranking!r}"):
        make(ranking=ranking)


def test_the_perplexity_of_a_factored_output_needs_its_loss():
    model = trained("taylor")
    with pytest.raises(ValueError, match="its perplexity needs that loss"):
        metrics.Perplexity().update_state(np.arange(BATCH), model(X))
