"""`predict` warns once if it computes very many logits."""

import itertools
import logging

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.slow import slow_but
from tf_largeout import layers, retrieval
from tf_largeout.layers import class_output

N, DIM, ROWS = 100, 4, 40
X = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype("float32")
ALL = 4 * N * ROWS  # bytes of the logits of X


@pytest.fixture
def warnings(caplog, monkeypatch):
    """A function that returns the warnings so far. The limit is the size of `X`'s logits."""
    monkeypatch.setattr(class_output, "MANY_LOGITS", ALL)
    caplog.set_level(logging.WARNING, "tf_largeout")
    return lambda: [one.getMessage() for one in caplog.records if one.name == "tf_largeout"]


def new_model(head=None, **kwargs):
    model = keras.Sequential([keras.Input([DIM]), head or layers.LargeOutput(N, name="places")])
    model.compile(**kwargs)
    return model


def dataset(model, rows):
    return model.predict(tf.data.Dataset.from_tensor_slices(rows).batch(7), verbose=0)


CALLS = {
    "arrays": lambda model, rows: model.predict(rows, verbose=0, batch_size=16),
    "dataset": dataset,
}
MODES = {"graph": {}, "eager": {"run_eagerly": True}, "two steps": {"steps_per_execution": 2}}


@pytest.mark.parametrize(
    "call, mode",
    slow_but(
        [("arrays", "graph")],
        itertools.product(CALLS, MODES),
    ),
)
def test_predict_warns_once_when_the_limit_is_exceeded(call, mode, warnings):
    model, predict = new_model(**MODES[mode]), CALLS[call]
    predict(model, X)
    assert warnings() == []
    predict(model, X[:1])
    predict(model, X)
    (message,) = warnings()
    assert "predict_top_k(model, x, k)" in message
    assert "of logits of layer 'places'" in message and "100 per example" in message


@pytest.mark.parametrize(
    "head", [lambda: layers.FactoredOutput(N, 0.1), lambda: layers.HierarchicalOutput(N)]
)
def test_all_output_layers_warn(head, warnings):
    model = new_model(head(), run_eagerly=True)
    model.predict(np.concatenate([X, X]), verbose=0)
    assert len(warnings()) == 1


def test_low_precision_logits_count_two_bytes(warnings):
    model = new_model(layers.LargeOutput(N, dtype="mixed_bfloat16"), run_eagerly=True)
    model.predict(np.concatenate([X, X]), verbose=0)
    assert warnings() == []


def test_each_position_of_a_sequence_counts(warnings):
    model = keras.Sequential([keras.Input([None, DIM]), layers.LargeOutput(N)])
    model.predict(X.reshape(10, 4, DIM), verbose=0)
    assert warnings() == []
    model.predict(X.reshape(10, 4, DIM)[:1], verbose=0)
    assert len(warnings()) == 1


def test_predict_warns_and_other_methods_do_not(warnings):
    model = new_model(
        optimizer="sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    model.optimizer.build(model.trainable_variables)  # avoids a second trace
    labels = np.zeros(ROWS)
    for _ in range(2):
        model.fit(X, labels, verbose=0)
        model.evaluate(X, labels, verbose=0)
        model(X)
        model.predict_on_batch(X)
        retrieval.predict_top_k(model, X, 3, verbose=0)
    assert warnings() == []


@pytest.mark.slow
def test_exported_models_do_not_count(warnings, tmp_path):
    model = new_model()
    model.predict(X, verbose=0)
    model.export(tmp_path / "model", verbose=False)
    assert b"PyFunc" not in (tmp_path / "model" / "saved_model.pb").read_bytes()
    step = tf.function(model.predict_step, input_signature=[tf.TensorSpec([None, DIM])])
    ops = {node.op for node in step.get_concrete_function().graph.as_graph_def().node}
    assert "PyFunc" not in ops
