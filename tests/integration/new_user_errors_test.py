"""Errors about frequent mistakes of new users say what to do, and doing so works."""

import re

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.integration.new_users import (
    STRINGS,
    N,
    X,
    Y,
    compiled,
    factored,
    fitted,
    tower,
    two_outputs,
)


def bag_of_strings(layer):
    return layer(keras.Input([2], dtype="string"))


def raised_as_value_error(function):
    try:
        function()
    except TypeError as error:
        raise ValueError(str(error)) from error


MASK = np.ones((4, N), bool)
ERRORS = {
    "one-hot": (
        lambda: fitted(np.eye(N, dtype="float32")[Y]),
        r"dtype float32 and shape \(.*, 20\).*argmax\(y, axis=-1\).*tf.SparseTensor",
    ),
    "names as labels": (lambda: fitted(STRINGS), "dtype string.*StringLookup.*class_names"),
    "targets of another loss": (
        lambda: fitted(tf.sparse.eye(4, N), loss="nce_loss"),
        "type SparseTensor. `SoftmaxLoss`, `SampledSoftmaxLoss`",
    ),
    "dense targets": (
        lambda: factored(np.ones((4, N), "float32")),
        r"`SquaredErrorLoss` also take.*tf.sparse.from_dense\(y\)",
    ),
    "bag of strings": (
        lambda: bag_of_strings(tflo.layers.EmbeddingBag(5, 3)),
        r"must be integers. Received: dtype string.*StringLookup\(vocabulary=words",
    ),
    "bigrams of strings": (
        lambda: bag_of_strings(tflo.layers.HashedBigrams(5, 5)),
        r"dtype string.*StringLookup\(vocabulary=words",
    ),
    "strings as features": (
        lambda: tflo.layers.LargeOutput(N)(STRINGS[:, None]),
        "must be numbers. Received: strings.*StringLookup",
    ),
    "another padding": (
        lambda: tflo.layers.EmbeddingBag(5, 3)(np.array([[1, -1]])),
        "(?s)such as -1, pass it as `padding_id`. Received ids",
    ),
    "regularizer": (
        lambda: compiled(embeddings_regularizer="l2"),
        r"no argument `embeddings_regularizer`. Received: .*='l2'.*`weight_decay`",
    ),
    "num_sampled": (
        lambda: compiled(num_sampled=512),
        r"no argument `num_sampled`.*sampler=tf_largeout.samplers.UniformSampler\(512\)",
    ),
    "activation": (
        lambda: compiled(activation="softmax"),
        "no argument `activation`.*returns logits.*SampledSoftmaxLoss",
    ),
    "unknown argument": (lambda: compiled(no_such=1), "Unrecognized keyword arg.*no_such"),
    "number as sampler": (lambda: compiled(sampler=7), r"sampler=7.*UniformSampler\(7\)"),
    "sampler by name": (
        lambda: compiled(sampler="bigram"),
        r"'top_k', 'uniform'\]. UnigramSampler, .*need the counts.*counts=",
    ),
    "tail by name": (
        lambda: tflo.samplers.LSHSampler(8, num_hard=4, tail="bigram"),
        r"the names \['log_uniform', 'uniform'\]",
    ),
    "mask of classes": (
        lambda: compiled().layers[-1].top_k(X, 2, exclude=MASK),
        r"dtype bool.*\[numpy.flatnonzero\(row\) for row in mask\]",
    ),
    "mask of allowed classes": (
        lambda: compiled().layers[-1].top_k(X, 2, allowed=MASK[0]),
        r"dtype bool.*pass the ids: numpy.flatnonzero\(mask\)",
    ),
    "two outputs in predict_top_k": (
        lambda: tflo.retrieval.predict_top_k(two_outputs(), X, 2, verbose=0),
        r"with 2 outputs. Make a model of one.*keras.Model\(model.inputs, model.outputs\[0\]\)",
    ),
    "two outputs in an export": (
        lambda: tflo.serving.export(two_outputs(), "not written"),
        "`export` needs a model with one output.*with 2 outputs",
    ),
    "two outputs in resize_classes": (
        lambda: tflo.resize_classes(two_outputs(), 2 * N),
        r"one class output layer.*has 2 \('first', 'second'\)",
    ),
    "joined model": (
        lambda: fitted(sampler=None),
        "sampler=None.*from `join_models`.*fine-tune it with `SoftmaxLoss`",
    ),
    "temperature": (
        lambda: compiled(temperature=0.1),
        "no argument `temperature`.*: scale=1 / temperature",
    ),
    "Dense weights": (lambda: compiled(weights=[X.T]), r"embeddings_initializer=kernel.T"),
    "argument of another layer": (
        lambda: tflo.layers.FactoredOutput(N, 0.1, normalize=True),
        "FactoredOutput has no argument `normalize`.*Only a `LargeOutput` has this argument",
    ),
    "mask_zero of a bag": (
        lambda: tflo.layers.EmbeddingBag(5, 3, mask_zero=True),
        "EmbeddingBag has no argument `mask_zero`.*padding_id=0",
    ),
    "lr of an optimizer": (
        lambda: tflo.optimizers.LazyAdam(lr=0.1),
        "LazyAdam has no argument `lr`. Received: lr=0.1. Its name is `learning_rate`",
    ),
    "sampler of another layer": (
        lambda: tflo.layers.FactoredOutput(N, 0.1, sampler="uniform"),
        "FactoredOutput has no argument `sampler`.*Only a `LargeOutput` has a sampler",
    ),
    "num_sampled of a loss": (
        lambda: tflo.losses.SampledSoftmaxLoss(num_sampled=10),
        r"no argument `num_sampled`. Received: num_sampled=10.*UniformSampler\(512\)",
    ),
    "num_negatives of a sampler": (
        lambda: tflo.samplers.UniformSampler(num_negatives=10),
        "UniformSampler has no argument `num_negatives`. Received: .*=10. .* `num_sampled`",
    ),
    "counts of another sampler": (
        lambda: tflo.samplers.LSHSampler(8, counts=[1, 2]),
        r"no argument `counts`.*UnigramSampler\(512, counts=counts\)",
    ),
    "top_k of a metric": (
        lambda: tflo.metrics.PrecisionAtK(top_k=5),
        "PrecisionAtK has no argument `top_k`. Received: top_k=5. Its name is `k`",
    ),
    "nprobe of an index": (
        lambda: tflo.retrieval.InvertedFileIndex(nprobe=8),
        "InvertedFileIndex has no argument `nprobe`.*`num_probes`",
    ),
    "M of an index": (
        lambda: tflo.retrieval.HnswIndex(M=16),
        "HnswIndex has no argument `M`.*`max_neighbors`",
    ),
    "temperature of a loss": (
        lambda: tflo.losses.SoftmaxLoss(temperature=0.1),
        r"LargeOutput\(num_classes, scale=1 / temperature\)",
    ),
    "class_weight of a loss": (
        lambda: tflo.losses.SoftmaxLoss(class_weight=np.ones(N)),
        "(?s)no argument `class_weight`.*`class_weights`",
    ),
    "class weights of another loss": (
        lambda: tflo.losses.NCELoss(class_weights=[1.0, 2.0]),
        "NCELoss has no argument `class_weights`.*SampledSoftmaxLoss and AbsoluteSoftmaxLoss",
    ),
    "shards of a tower": (
        lambda: compiled(embeddings=tower(), num_shards=2),
        "or of an ItemTower have no shards. Received: num_shards=2. Leave `embeddings` out",
    ),
    "unknown argument of a loss": (
        lambda: raised_as_value_error(lambda: tflo.losses.SoftmaxLoss(no_such=1)),
        "unexpected keyword argument 'no_such'",
    ),
    "unknown argument of a sampler": (
        lambda: raised_as_value_error(lambda: tflo.samplers.UniformSampler(no_such=1)),
        "unexpected keyword argument 'no_such'",
    ),
    "margin in degrees": (
        lambda: tflo.losses.MarginSoftmaxLoss(28.6),
        r"at most pi / 2 \(it is in radians\). Received: angular_margin=28.6",
    ),
    "table as an array": (
        lambda: compiled(embeddings=np.ones((N, 3))),
        r"Received: an array of shape \(20, 3\). For initial values use `embeddings_init",
    ),
    "tower as an output layer": (
        lambda: keras.Sequential([keras.Input([3]), tower()]),
        r"(?s)is not an output layer.*shape \(None, 3\) and dtype float32.*"
        r"LargeOutput\(20, sampler='uniform', embeddings=tower\)",
    ),
    "tower of features": (lambda: tower()(X), r"not class ids \[n\]. Pass the tower to"),
    "class_weight with several labels": (
        lambda: compiled().fit(X, np.stack([Y, Y], 1), class_weight={0: 2.0}, verbose=0),
        r"one label per example.*shape \(.*, 2\).*class_weights=weights",
    ),
    "labels in a dict": (
        lambda: fitted({"ids": Y}),
        r"Received the string 'ids'. If the labels are in a dict, pass its value: y\['ids'\]",
    ),
    "no labels": (lambda: fitted(None), r"Received no labels. Pass them as `y`, or a dataset"),
    "weights of classes": (
        lambda: compiled().fit(X, Y, sample_weight=np.ones((4, N)), verbose=0),
        r"one number per example, shape \(.*\).*Received: shape \(.*, 20\).*`class_weights`",
    ),
    "weights as strings": (
        lambda: tflo.losses.SoftmaxLoss()(Y, compiled().layers[-1](X), STRINGS),
        "Received: shape .* and dtype string",
    ),
    "one excluded class": (
        lambda: tflo.metrics.with_exclude(Y, Y),
        r"labels of shape \(4,\), and exclude of shape \(4,\).*exclude\[:, numpy.newaxis\]",
    ),
    "exact metrics of a pair": (
        lambda: tflo.callbacks.ExactMetrics((X, Y)),
        r"`y` must contain the labels.*Pass ExactMetrics\(x, y\)",
    ),
    "metric of dense targets": (
        lambda: fitted(
            np.eye(N, dtype="float32")[Y],
            loss=keras.losses.CategoricalCrossentropy(from_logits=True),
            metrics=["precision_at_1"],
        ),
        "Metric 'precision_at_1' cannot use its labels.*dtype float32.*tf.sparse.from_dense",
    ),
    "bias of an index": (
        lambda: tflo.retrieval.BruteForceIndex().build(X).update([0], X[:1], bias=[1.0]),
        "without biases.*Received: .*with biases. Omit `bias`",
    ),
    "metric of too many classes": (
        lambda: fitted(metrics=[tflo.metrics.PrecisionAtK(100)]),
        "k=100 best classes.*only 20 classes. Pass a smaller `k`",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_says_what_to_do(case):
    function, message = ERRORS[case]
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message):
        function()


def test_the_message_of_a_wrong_batch_comes_without_the_trace_of_its_check():
    """It is the first line after TensorFlow's heading, and one line with the node follows."""
    model = compiled()
    model.compile("lazy_adam", "sampled_softmax_loss")
    ones, one_hot = np.ones(4, "float32"), np.eye(N, dtype="int64")[Y]
    wrong_label = r"assertion failed: \[Labels must be class ids in \[0, 20\).*to\] \[23\]"
    cases = [
        (model.evaluate, X, Y + N, ones, wrong_label),
        (model.fit, X, Y + N, ones, wrong_label),
        (model.fit, X * np.nan, Y, ones, "The features that enter layer '.*' must be finite"),
        (model.fit, X, Y, ones * np.nan, "The `sample_weight` of SampledSoftmaxLoss must be"),
        (model.fit, X, one_hot, ones, r"assertion failed: \[Labels must be.* 20 columns.*20\]"),
    ]
    for method, x, y, weights, message in cases:
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            method(x, y, sample_weight=weights, verbose=0)
        lines = caught.value.message.split("\n")
        assert lines[:2] == ["Graph execution error:", ""] and len(lines) == 4
        assert re.match(message, lines[2]), lines[2]


def test_metrics_have_names():
    kinds = ["precision", "recall", "hit_rate", "ndcg", "mean_reciprocal_rank"]
    names = [*(f"{kind}_at_5" for kind in [*kinds, "mean_average_precision"]), "perplexity"]
    found = fitted(metrics=names).evaluate(X, Y, verbose=0, return_dict=True)
    assert set(found) == {"loss", *names} and np.all(np.isfinite(list(found.values())))


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "mean_with_sample_weight"])
def test_the_weight_of_an_example_without_labels_may_be_nan(reduction):
    labels, weights = np.array([0, 1, -1, 2]), np.array([1.0, 2.0, np.nan, 0.5])
    loss = tflo.losses.SoftmaxLoss(reduction=reduction)
    model = fitted(labels, loss=loss, sampler=None, metrics=["perplexity"])
    model.fit(X, labels, sample_weight=weights, verbose=0)
    assert np.all(np.isfinite(model.layers[-1].get_weights()[0]))
    found = model.evaluate(X, labels, sample_weight=weights, verbose=0)
    expected = model.evaluate(X, labels, sample_weight=np.nan_to_num(weights), verbose=0)
    assert found == expected and np.isfinite(found).all()
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be finite"):
        model.evaluate(X, Y, sample_weight=weights, verbose=0)


@pytest.mark.parametrize(
    "labels, as_ids",
    [
        (pd.Series([0, 3, None, 1], dtype="Int64"), lambda y: y.fillna(-1).to_numpy("int64")),
        (pd.Series(["a", "d", None, "b"], dtype="category"), lambda y: y.cat.codes.to_numpy()),
    ],
)
def test_labels_of_the_types_of_pandas_are_converted_as_the_guide_says(labels, as_ids):
    with pytest.raises(ValueError, match=f"Invalid dtype: {labels.dtype}"):  # by Keras
        fitted(labels)
    assert as_ids(labels)[2] == -1
    fitted(as_ids(labels))


@pytest.mark.slow
def test_the_ways_out_that_messages_name_work():
    factored(tf.sparse.from_dense(np.eye(N, dtype="float32")[Y]))
    fitted(tf.sparse.from_dense(np.eye(N, dtype="float32")[Y]))
    lookup = keras.layers.StringLookup(vocabulary=["b", "a", "d", "c"], num_oov_indices=0)
    np.testing.assert_array_equal(lookup(STRINGS), [1, 0, 3, 2])
    words = keras.layers.StringLookup(vocabulary=["a"], mask_token="")
    np.testing.assert_array_equal(words([["a", ""]]), [[2, 0]])
    mask = np.arange(N) < np.array([[3], [1], [0], [2]])
    _, ids = compiled().layers[-1].top_k(X, N, exclude=[np.flatnonzero(row) for row in mask])
    assert [set(row) - {-1} for row in ids.numpy().tolist()] == [
        set(range(first, N)) for first in (3, 1, 0, 2)
    ]
    model = two_outputs()
    one = keras.Model(model.inputs, model.outputs[0])
    _, ids = tflo.retrieval.predict_top_k(one, X, 2, verbose=0)
    np.testing.assert_array_equal(ids, model.get_layer("first").top_k(X, 2)[1])
