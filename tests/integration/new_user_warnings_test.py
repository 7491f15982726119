"""What new users are told when a model trains, but slowly or with wrong figures."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import harness
from tests.integration.new_users import N, X, Y, compiled, fitted, tower


def messages(caplog):
    return [one.getMessage() for one in caplog.records if one.name == "tf_largeout"]


@pytest.mark.parametrize(
    "optimizer, instead",
    [
        ("adam", "LazyAdam"),
        pytest.param(
            lambda: keras.optimizers.SGD(0.1, momentum=0.5), "LazySGD", marks=pytest.mark.slow
        ),
        pytest.param(
            lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adagrad()),
            "LazyAdagrad",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_dense_optimizer_of_a_sampled_layer_gives_one_warning(caplog, optimizer, instead):
    model = compiled(optimizer() if callable(optimizer) else optimizer)
    model.fit(X, Y, verbose=0)
    model.fit(X[:2], Y[:2], verbose=0, epochs=2)
    (message,) = messages(caplog)
    assert f"all {N} x 3 numbers" in message and f"optimizers.{instead}," in message


def test_a_dense_optimizer_of_a_hierarchical_layer_gives_one_warning(caplog):
    model = keras.Sequential([keras.Input([3]), tflo.layers.HierarchicalOutput(N)])
    model.compile("nadam", tflo.losses.HierarchicalSoftmaxLoss(), run_eagerly=True)
    model.fit(X, Y, verbose=0)
    (message,) = messages(caplog)
    assert f"Nadam reads and writes all {N} x 3 numbers" in message


@pytest.mark.slow
def test_row_sparse_updates_give_no_warning(caplog):
    one_dense = keras.Sequential([keras.Input([3]), keras.layers.Dense(3)])
    fitted(optimizer="sgd")
    fitted(optimizer="lazy_adam")
    fitted(optimizer=keras.optimizers.Adam(), embeddings=tower())  # no table of rows
    fitted(optimizer=keras.optimizers.Adam(), loss="softmax_loss")
    frozen = compiled(optimizer=keras.optimizers.Adam())
    frozen.layers[-1].embeddings.trainable = False
    frozen.fit(X, Y, verbose=0)
    rest = harness.multi_optimizer(
        keras.optimizers.Adam(), {".*embeddings|.*bias": tflo.optimizers.LazyAdam()}
    )
    model = keras.Sequential([one_dense, tflo.layers.LargeOutput(N, "uniform")])
    model.compile(rest, "sampled_softmax_loss", run_eagerly=True)
    model.fit(X, Y, verbose=0)
    assert not messages(caplog)


def test_a_keras_loss_of_probabilities_gives_one_warning(caplog):
    model = fitted(optimizer="sgd", loss="sparse_categorical_crossentropy")
    model.evaluate(X, Y, verbose=0)
    (message,) = messages(caplog)
    assert "sparse_categorical_crossentropy treats" in message
    assert "from_logits=True" in message and "SoftmaxLoss()" in message


def test_a_keras_loss_of_one_of_two_outputs_gives_a_warning(caplog):
    inputs = keras.Input([3])
    heads = [keras.Sequential([tflo.layers.LargeOutput(N)]) for _ in range(2)]
    model = keras.Model(inputs, [head(inputs) for head in heads])
    good, bad = (
        keras.losses.SparseCategoricalCrossentropy(from_logits=x) for x in (True, False)
    )
    model.compile("sgd", [good, bad], run_eagerly=True)
    model.fit(X, [Y, Y], verbose=0)
    (message,) = messages(caplog)
    assert heads[1].layers[0].name in message


@pytest.mark.parametrize(
    "loss, last",
    [
        ("sparse_categorical_crossentropy", [keras.layers.Softmax()]),
        (lambda y, logits: tf.reduce_mean(logits), []),
    ],
)
def test_losses_that_are_right_give_no_warning(caplog, loss, last):
    fitted(optimizer="sgd", loss=loss, last=last)
    assert not messages(caplog)


@pytest.mark.parametrize(
    "metrics, names",
    [
        (["accuracy"], "accuracy"),
        ([keras.metrics.SparseTopKCategoricalAccuracy(2), "ndcg_at_5"], "sparse_top_k_categ"),
        (["precision_at_1", tflo.metrics.Perplexity()], None),
    ],
)
def test_keras_metrics_of_our_logits_give_one_warning(caplog, metrics, names):
    model = fitted(metrics=metrics)
    model.evaluate(X, Y, verbose=0)
    found = messages(caplog)
    assert len(found) == (names is not None)
    for message in found:
        assert f"The Keras metrics {names}" in message and "ndcg" not in message
        assert "several labels and for labels of -1" in message and "PrecisionAtK(1)" in message


def test_an_unknown_metric_gives_an_error_without_a_warning(caplog):
    with pytest.raises(ValueError, match="Could not interpret metric identifier"):
        fitted(metrics=["precision@1"])
    assert not messages(caplog)


def test_keras_metrics_of_another_output_give_no_warning(caplog):
    inputs = keras.Input([3])
    outputs = [tflo.layers.LargeOutput(N)(inputs), keras.layers.Dense(N)(inputs)]
    model = keras.Model(inputs, outputs)
    losses = ["softmax_loss", keras.losses.SparseCategoricalCrossentropy(from_logits=True)]
    model.compile("sgd", losses, metrics=[None, ["accuracy"]], run_eagerly=True)
    model.fit(X, [Y, Y], verbose=0)
    assert not messages(caplog)


def stop_by(name):
    return keras.callbacks.EarlyStopping(name, mode="min", patience=1)


@pytest.mark.parametrize(
    "metric",
    [
        "perplexity",
        pytest.param(tflo.metrics.MacroRecallAtK(2, N), marks=pytest.mark.slow),
        pytest.param(tflo.metrics.NDCG(2), marks=pytest.mark.slow),
    ],
)
def test_early_stopping_on_a_metric_that_is_nan_in_training_gives_a_warning(caplog, metric):
    # In a graph, the second `fit` does not call the metric again.
    model, name = compiled(metrics=[metric]), getattr(metric, "name", metric)
    model.run_eagerly = name != "perplexity"
    exact = tflo.callbacks.ExactMetrics(X, Y)
    stops = [stop_by(f"val_{name}"), stop_by(f"exact_{name}")]
    validation = {"validation_data": (X, Y), "epochs": 2, "verbose": 0}
    found = model.fit(X, Y, callbacks=[exact, *stops], **validation).history
    assert not messages(caplog) and np.isfinite(found[f"val_{name}"]).all()
    found = model.fit(X, Y, callbacks=[stop_by(name)], **validation).history
    if name == "ndcg_at_2":  # has a value, which is too high
        assert not messages(caplog) and np.isfinite(found[name]).all()
    else:
        (message,) = messages(caplog)
        assert f"EarlyStopping monitors '{name}', which is NaN" in message
        assert f"'val_{name}'" in message and np.isnan(found[name]).all()
