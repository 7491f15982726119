"""What new users are told about frequent mistakes: errors and warnings say what to do."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import harness

N = 20
X, Y = np.ones((4, 3), "float32"), np.arange(4)
STRINGS = tf.constant(["a", "b", "c", "d"])


def compiled(
    optimizer="lazy_adam", loss="sampled_softmax_loss", last=(), metrics=None, **kwargs
):
    head = tflo.layers.LargeOutput(N, **({"sampler": "uniform"} | kwargs))
    model = keras.Sequential([keras.Input([3]), head, *last])
    # Eager, because this is faster here, except for one optimizer.
    model.compile(optimizer, loss, metrics=metrics, run_eagerly=optimizer != "adam")
    return model


def fitted(y=Y, **kwargs):
    model = compiled(**kwargs)
    model.fit(X, y, verbose=0)
    return model


def factored(y, metrics=None):
    model = keras.Sequential([keras.Input([3]), tflo.layers.FactoredOutput(N, 0.1)])
    model.compile("lazy_adam", tflo.losses.SquaredErrorLoss(), metrics=metrics)
    model.fit(X, y, verbose=0)


def messages(caplog):
    return [one.getMessage() for one in caplog.records if one.name == "tf_largeout"]


@pytest.mark.parametrize(
    "optimizer, instead",
    [
        ("adam", "LazyAdam"),
        (lambda: keras.optimizers.SGD(0.1, momentum=0.5), "LazySGD"),
        (
            lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adagrad()),
            "LazyAdagrad",
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


def bag_of_strings(layer):
    return layer(keras.Input([2], dtype="string"))


def two_outputs():
    inputs = keras.Input([3])
    heads = [tflo.layers.LargeOutput(N, name=name)(inputs) for name in ("first", "second")]
    return keras.Model(inputs, heads)


def tower():
    return tflo.layers.ItemTower(np.ones([N, 2]), keras.layers.Dense(3))


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
    "metric of numeric targets": (
        lambda: factored(tf.sparse.eye(4, N), metrics=["precision_at_1"]),
        "Metric 'precision_at_1' needs class ids.*sparse targets of SquaredErrorLoss",
    ),
    "bias of an index": (
        lambda: tflo.retrieval.BruteForceIndex().build(X).update([0], X[:1], bias=[1.0]),
        "without biases.*Received: .*with biases. Omit `bias`",
    ),
    "metric of too many classes": (
        lambda: fitted(metrics=["precision_at_100"]),
        "k=100 best classes.*only 20 classes. Pass a smaller `k`",
    ),
}


@pytest.mark.parametrize(
    "metrics, names",
    [
        (["accuracy"], "accuracy"),
        ([keras.metrics.SparseTopKCategoricalAccuracy(2), "ndcg_at_2"], "sparse_top_k_categ"),
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
    "metric", ["perplexity", tflo.metrics.MacroRecallAtK(2, N), tflo.metrics.NDCG(2)]
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


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_says_what_to_do(case):
    function, message = ERRORS[case]
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message):
        function()


def test_metrics_have_names():
    kinds = ["precision", "recall", "hit_rate", "ndcg", "mean_reciprocal_rank"]
    names = [*(f"{kind}_at_3" for kind in [*kinds, "mean_average_precision"]), "perplexity"]
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
