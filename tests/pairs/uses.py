"""Uses of a trained model, each compared with the reference."""

import functools
import re

import keras
import numpy as np
import tensorflow as tf

import tf_largeout as tflo
from tests import replicas
from tests.pairs import reference
from tests.pairs.features import (
    BATCH,
    FEATURES,
    IDS,
    LABELS,
    NUM_CLASSES,
    STEPS,
    new_model,
    train,
)

K = 5


@functools.lru_cache(maxsize=1)
def trained(name):
    """Returns a trained model, for uses that do not change it."""
    return train(new_model(name), name)


def _loss_of(model):
    return model.loss.name


def _ranked_as(model):
    """Returns the name of the loss that ranks classes like the layer."""
    ranking = model.layers[-1].ranking
    names = {"absolute": "absolute_softmax_loss", "taylor": "taylor_softmax_loss"}
    return names.get(ranking, "softmax_loss")


def logits_of(model):
    """Computes the logits with NumPy; log-probabilities for hierarchies."""
    head = model.layers[-1]
    encoder = keras.Model(model.input, head.input)
    features = np.asarray(encoder(IDS), np.float64)
    if isinstance(head, tflo.layers.HierarchicalOutput | tflo.layers.HuffmanOutput):
        found = np.asarray(model(IDS), np.float64)
        np.testing.assert_allclose(np.exp(found).sum(axis=-1), 1, rtol=1e-4)
        return found
    if getattr(head, "normalize", False):
        features /= np.linalg.norm(features, axis=-1, keepdims=True)
    features *= float(getattr(head, "scale_value", lambda: 1.0)())
    logits = features @ np.asarray(head.class_embeddings(), np.float64).T
    bias = _bias_of(head)
    logits = logits if bias is None else logits + bias
    cap = getattr(head, "logit_soft_cap", None)
    return logits if cap is None else cap * np.tanh(logits / cap)


def _bias_of(head):
    if isinstance(head, tflo.layers.FactoredOutput):
        return np.asarray(head.bias, np.float64)
    paths = re.compile(rf"{head.name}/bias(_\d+)?")  # A number for each shard.
    parts = [weight.numpy() for weight in head.weights if paths.fullmatch(weight.path)]
    return np.concatenate(parts, dtype=np.float64) if parts else None


def _tolerance(model):
    return 1e-3 if model.layers[-1].compute_dtype == "float32" else 2e-2


def _flat(logits):
    return logits.reshape(-1, logits.shape[-1])


def assert_best(model, scores, ids, logits, exclude=None):
    """Compares scores with the reference, and ids except for ties by rounding."""
    tolerance = _tolerance(model)
    expected, best = reference.best(_ranked_as(model), logits, K, exclude)
    scores, ids = np.asarray(scores, np.float64), np.asarray(ids)
    np.testing.assert_allclose(scores, expected, rtol=tolerance, atol=tolerance)
    assert (ids == best).mean() > (0.9 if tolerance < 1e-2 else 0.5)


def assert_probabilities(model, found, ids, logits):
    """Compares the probabilities of the classes `ids` with the reference."""
    loss = _ranked_as(model)
    if loss == "absolute_softmax_loss" and isinstance(
        model.layers[-1], tflo.layers.FactoredOutput
    ):
        loss = "spherical_softmax_loss"
    expected = np.take_along_axis(reference.probabilities(loss, logits), ids, axis=-1)
    found, tolerance = np.asarray(found), _tolerance(model)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-7)
    assert (np.diff(found, axis=-1) <= 1e-6).all()


def evaluate(name, tmp_path):
    model = trained(name)
    labels = LABELS[FEATURES[name].labels]
    found = model.evaluate(IDS, labels, batch_size=BATCH, verbose=0, return_dict=True)
    _assert_evaluation(model, found, labels)


def _assert_evaluation(model, found, labels):
    logits = _flat(logits_of(model))
    rows = labels.reshape(len(logits), -1)
    expected = reference.evaluate(_loss_of(model), logits, rows, K)
    tolerance = _tolerance(model)
    if model.layers[-1].ranking == "absolute" and _loss_of(model) == "sampled_softmax_loss":
        for key in ("precision_at_1", "recall_at_5"):  # the perplexity follows the loss
            expected[key] = reference.evaluate("absolute_softmax_loss", logits, rows, K)[key]
    for key, value in found.items():
        np.testing.assert_allclose(value, expected[key], rtol=tolerance, err_msg=key)


def predict_top_k(name, tmp_path):
    model = trained(name)
    logits = logits_of(model)
    scores, ids = tflo.retrieval.predict_top_k(model, IDS, K, verbose=0)
    assert_best(model, scores, ids, logits)
    exclude = ids[..., :2]
    scores, ids = tflo.retrieval.predict_top_k(model, IDS, K, exclude=exclude, verbose=0)
    assert_best(model, scores, ids, logits, exclude)


def probabilities(name, tmp_path):
    model = trained(name)
    found, ids = tflo.retrieval.predict_top_k(
        model, IDS, NUM_CLASSES, verbose=0, scores="softmax"
    )
    assert_probabilities(model, found, ids, logits_of(model))
    np.testing.assert_allclose(found.sum(axis=-1), 1, rtol=1e-4)


def _with_index(make):
    def use(name, tmp_path):
        model = trained(name)
        head = model.layers[-1]
        index = make().build(head.class_embeddings(), _bias_of(head))
        scores, ids = tflo.retrieval.predict_top_k(model, IDS, K, index=index, verbose=0)
        assert_best(model, scores, ids, logits_of(model))

    return use


def _export(ops, index=None):
    def use(name, tmp_path):
        model = trained(name)
        head = model.layers[-1]
        kwargs = {}
        if index is not None:
            kwargs["index"] = index().build(head.class_embeddings(), _bias_of(head))
        tflo.serving.export(model, tmp_path / "1", k=K, ops=ops, **kwargs)
        signatures = tf.saved_model.load(str(tmp_path / "1")).signatures
        ids = tf.constant(IDS, tf.int32)
        found = signatures["serving_default"](ids=ids)
        logits = logits_of(model)
        assert_best(model, found["scores"], found["ids"], logits)
        exclude = found["ids"].numpy().reshape(BATCH, -1)[:, :2]
        excluded = exclude if logits.ndim == 2 else np.repeat(exclude[:, np.newaxis], 3, axis=1)
        found = signatures["top_k"](ids=ids, k=tf.constant(K), exclude=tf.constant(exclude))
        assert_best(model, found["scores"], found["ids"], logits, excluded)

    return use


def _export_probabilities(ops):
    def use(name, tmp_path):
        model = trained(name)
        path = tmp_path / "1"
        tflo.serving.export(model, path, k=NUM_CLASSES, ops=ops, scores="softmax")
        served = tf.saved_model.load(str(path)).signatures["serving_default"]
        found = served(ids=tf.constant(IDS, tf.int32))
        assert_probabilities(model, found["scores"], found["ids"].numpy(), logits_of(model))

    return use


def join_models(name, tmp_path):
    models = [trained(name), train(new_model(name), name, 1)]
    joined = tflo.join_models(models)
    mean = np.mean([logits_of(model) for model in models], axis=0)
    tolerance = _tolerance(models[0])
    found = joined.predict(IDS, verbose=0)
    np.testing.assert_allclose(found, mean, rtol=tolerance, atol=tolerance)


def resize_classes(name, tmp_path):
    model = trained(name)
    kept = np.arange(NUM_CLASSES)[::-1]
    resized = tflo.resize_classes(model, NUM_CLASSES, kept=kept)
    before = model.predict(_renamed(model, kept), verbose=0)
    np.testing.assert_allclose(
        resized.predict(IDS, verbose=0), before[..., kept], rtol=1e-4, atol=1e-4
    )
    assert resized.layers[-1].ranking == model.layers[-1].ranking


def _renamed(model, kept):
    """Returns the input ids for the old model, whose words may be renumbered classes."""
    if getattr(model.layers[-1], "tied_layer", None) is None:
        return IDS
    return kept[IDS]


def replicas_evaluate(name, tmp_path):
    with replicas.two_replicas().scope():
        model = new_model(name)
        model.run_eagerly = False
    train(model, name, steps=2)
    labels = LABELS[FEATURES[name].labels]
    found = model.evaluate(IDS, labels, batch_size=BATCH, verbose=0, return_dict=True)
    # The loss is the mean over replicas, which may have unequal numbers of examples.
    del found["loss"]
    _assert_evaluation(model, found, labels)


def resume(name, tmp_path):
    whole = trained(name)
    part = train(new_model(name), name, 1)
    part.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    again.run_eagerly = True
    train(again, name, STEPS - 1)
    for one, other in zip(whole.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


_retrieval = tflo.retrieval
USES = {
    "evaluate": evaluate,
    "predict_top_k": predict_top_k,
    "probabilities": probabilities,
    "BruteForceIndex": _with_index(_retrieval.BruteForceIndex),
    "InvertedFileIndex": _with_index(
        lambda: _retrieval.InvertedFileIndex(num_probes=NUM_CLASSES)
    ),
    "LSHIndex": _with_index(lambda: _retrieval.LSHIndex(NUM_CLASSES)),
    "core export": _export("core"),
    "custom export": _export("custom"),
    "export of an index": _export(
        "core", lambda: _retrieval.InvertedFileIndex(num_probes=NUM_CLASSES)
    ),
    "core export of probabilities": _export_probabilities("core"),
    "custom export of probabilities": _export_probabilities("custom"),
    "join_models": join_models,
    "resize_classes": resize_classes,
    "replicas": replicas_evaluate,
    "resume": resume,
}
