"""A `FactoredOutput` during training, when rows of V have pending changes.

The features are nearly parallel, so each step of the squared error shrinks one direction of U.
"""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.papers.factored import factored_models
from tests.papers.factored.factored_models import DIM, N, assert_close, bits, in_float64
from tests.reference import spherical_losses
from tests.reference.factored_output import DenseLayer, with_labels
from tests.slow import slow_but
from tf_largeout import losses

BATCH, RATE, TOLERANCE = 4, 0.3, 1e-4


def data(batches):
    random = np.random.default_rng(6)
    features = np.linspace(-1, 1, DIM) / DIM + 0.02 * random.normal(size=[batches * BATCH, DIM])
    labels = np.random.default_rng(7).integers(0, N, batches * BATCH)
    return features.astype("float32"), labels


def new_model(**kwargs):
    return factored_models.model("squared_error", factored_models.nothing, rate=RATE, **kwargs)


def fit(model, first, last):
    x, y = data(last)
    rows = slice(first * BATCH, None)
    model.fit(x[rows], y[rows], batch_size=BATCH, shuffle=False, verbose=0)
    return model


def trained(batches=33, **kwargs):
    """Returns a model in which some rows of V have pending folds."""
    model = fit(new_model(**kwargs), 0, batches)
    folds, seen = num_folds(model), model.layers[-1].class_matrix.state.seen.numpy()
    assert folds > 0 and np.any(seen < folds) and np.any(seen > 0)
    return model


def num_folds(model):
    return int(model.layers[-1].class_matrix.state.folds.numpy()[0, 0])


def dense_layer(batches=33):
    """The same training in numpy."""
    layer = factored_models.head()
    layer.build([None, DIM])
    loss = spherical_losses.LOSSES["squared_error"](N)
    dense = DenseLayer(layer.class_embeddings().numpy(), layer.bias.numpy(), loss)
    x, y = data(batches)
    for first in range(0, len(x), BATCH):
        rows = slice(first, first + BATCH)
        dense.step(with_labels(x[rows], y[rows, np.newaxis]), RATE)
    return dense


DENSE = dense_layer()
QUERIES = np.random.default_rng(8).normal(size=[5, DIM]).astype("float32")
LOGITS = DENSE.logits(QUERIES)


def check_embeddings(model, _):
    layer = model.layers[-1]
    assert_close(layer.class_embeddings(), DENSE.kernel, TOLERANCE)
    assert_close(layer.bias, DENSE.bias, TOLERANCE)


def check_prediction(model, _):
    assert_close(model.predict(QUERIES, verbose=0), LOGITS, TOLERANCE)


def check_call(model, _):
    assert_close(model(QUERIES), LOGITS, TOLERANCE)
    assert num_folds(model) > 0  # a call only reads


def check_call_in_training(model, _):
    call = tf.function(lambda x: tf.identity(model(x, training=True)))
    assert_close(call(QUERIES), LOGITS, TOLERANCE)


def check_evaluation(model, _):
    value = model.evaluate(QUERIES, np.arange(5), verbose=0)
    batch = with_labels(QUERIES, np.arange(5)[:, np.newaxis])
    assert value == pytest.approx(DENSE.value(batch), rel=TOLERANCE)


def check_statistics(model, _):
    labels = tf.range(5, dtype=tf.int64)[:, tf.newaxis]
    found = model.layers[-1].class_matrix.statistics(tf.constant(QUERIES), labels)
    assert_close(found.log_partition, np.log(np.exp(LOGITS).sum(1)), TOLERANCE)
    assert_close(found.true_logits[:, 0], LOGITS[np.arange(5), np.arange(5)], TOLERANCE)


def check_search(model, _):
    scores, ids = model.layers[-1].top_k(QUERIES, 3)
    assert_close(scores, np.sort(LOGITS)[:, :-4:-1], TOLERANCE)
    assert_close(np.take_along_axis(LOGITS, ids.numpy(), 1), scores, TOLERANCE)


def check_search_among_allowed_classes(model, _):
    scores, _ = model.layers[-1].top_k(QUERIES, 2, allowed=[3, 5, 8])
    assert_close(scores, np.sort(LOGITS[:, [3, 5, 8]])[:, :-3:-1], TOLERANCE)


def check_rows_and_dots(model, _):
    matrix, ids = model.layers[-1].class_matrix, tf.constant([[2, 7], [9, 0]], tf.int64)
    assert_close(matrix.rows(ids), DENSE.kernel[ids.numpy()], TOLERANCE)
    dots = matrix.dots(tf.constant(QUERIES[:2]), ids)
    assert_close(dots, np.take_along_axis(LOGITS[:2], ids.numpy(), 1), TOLERANCE)


def check_drift(model, _):
    assert max(model.layers[-1].drift().values()) < TOLERANCE


def check_keras_export(model, path):
    model.export(path / "model", verbose=False)
    loaded = tf.saved_model.load(path / "model")
    assert_close(loaded.serve(QUERIES), LOGITS, TOLERANCE)
    graph = str(loaded.signatures["serve"].graph.as_graph_def())
    assert "Largeout" not in graph  # so any TensorFlow server can run it


def check_saved_model(model, path):
    tf.saved_model.save(model, str(path / "model"))
    loaded = tf.saved_model.load(str(path / "model"))
    (logits,) = loaded.signatures["serving_default"](tf.constant(QUERIES)).values()
    assert_close(logits, LOGITS, TOLERANCE)


def check_export(model, path):
    tflo.serving.export(model, path / "model", k=3)
    answer = tf.saved_model.load(path / "model").signatures["serving_default"]
    (scores,) = (
        value for name, value in answer(tf.constant(QUERIES)).items() if "score" in name
    )
    assert_close(scores, np.sort(LOGITS)[:, :-4:-1], TOLERANCE)


def check_resized_model(model, _):
    larger = tflo.resize_classes(model, N + 2, kept=range(N)[::-1])
    found = larger.layers[-1].class_embeddings().numpy()
    assert_close(found[:N], DENSE.kernel[::-1], TOLERANCE)


CHECKS = {
    name.removeprefix("check_"): one for name, one in globals().items() if "check_" in name
}


@functools.cache
def trained_weights():
    return trained().get_weights()


@pytest.mark.parametrize(
    "what", slow_but(set(CHECKS) - {"saved_model", "export", "evaluation"}, CHECKS)
)
def test_pending_folds_are_applied_before_rows_are_read(what, tmp_path):
    model = new_model()
    model.set_weights(trained_weights())
    CHECKS[what](model, tmp_path)


@pytest.mark.slow
@in_float64
def test_pending_folds_of_float64_layers_are_applied_before_rows_are_read():
    model = trained()
    assert model.layers[-1].class_matrix.state.vectors.dtype == "float64"
    x, _ = data(1)
    assert_close(model.predict(x, verbose=0), model(x))
    assert max(model.layers[-1].drift().values()) < 1e-9


@pytest.mark.slow
def test_training_continues_after_rows_are_read():
    model = trained(20)
    model.predict(QUERIES, verbose=0)
    assert num_folds(model) == 0
    check_embeddings(fit(model, 20, 33), None)


@pytest.mark.slow
@pytest.mark.parametrize("form", slow_but(["model"], ["model", "weights", "checkpoint"]))
def test_a_resumed_run_is_bit_identical(form, tmp_path):
    whole, resumed = trained(), new_model()
    if form == "model":
        whole.save(tmp_path / "a.keras")
        resumed = keras.models.load_model(tmp_path / "a.keras")
    elif form == "weights":
        whole.save_weights(tmp_path / "a.weights.h5")
        resumed.load_weights(tmp_path / "a.weights.h5")
    else:
        path = tf.train.Checkpoint(model=whole).save(tmp_path / "a")
        tf.train.Checkpoint(model=resumed).restore(path).assert_consumed()
    assert bits(resumed) == bits(whole) and num_folds(resumed) > 0
    for one in (whole, resumed):
        fit(one, 33, 60)
    assert bits(resumed) == bits(whole)


@pytest.mark.parametrize(
    "form", slow_but(["checkpoint", "set_weights"], ["weights", "checkpoint", "set_weights"])
)
def test_weights_without_folds_replace_weights_with_folds(form, tmp_path):
    early, late = fit(new_model(run_eagerly=True), 0, 3), new_model()
    late.set_weights(trained_weights())
    assert num_folds(early) == 0
    if form == "weights":
        early.save_weights(tmp_path / "a.weights.h5")
        late.load_weights(tmp_path / "a.weights.h5")
    elif form == "checkpoint":
        path = tf.train.Checkpoint(model=early).save(tmp_path / "a")
        tf.train.Checkpoint(model=late).restore(path).assert_existing_objects_matched()
    else:
        late.set_weights(early.get_weights())
    assert bits(late) == bits(early)


@pytest.mark.slow
def test_training_applies_pending_folds_only_to_the_rows_it_reads():
    """Only computing the logits reads all rows, and these losses do not use logits."""
    model = new_model()
    model.set_weights(trained_weights())
    before = model.layers[-1].class_matrix.state.vectors.numpy()
    fit(model, 33, 34)
    labels_of_batch = np.isin(np.arange(N), data(34)[1][-BATCH:])
    changed = np.any(model.layers[-1].class_matrix.state.vectors.numpy() != before, axis=1)
    np.testing.assert_array_equal(changed, labels_of_batch)
    assert isinstance(model.loss, losses.SquaredErrorLoss)
