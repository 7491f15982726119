"""Cosine logits, the scale and the soft cap of `LargeOutput`, against NumPy."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.reference import logit_form as reference
from tests.slow import slow_but

NUM_CLASSES, DIM, BATCH = 37, 5, 6
LABELS = np.array([[3, -1], [3, 5], [0, 36], [-1, -1], [7, -1], [12, 1]])
FORMS = {
    "scale": {"scale": 2.5},
    "learned scale": {"scale": "learned"},
    "cosine": {"normalize": True},
    "cosine, scale": {"normalize": True, "scale": 4.0},
    "cosine, learned scale": {"normalize": True, "scale": "learned"},
    "soft cap": {"logit_soft_cap": 1.5},
    "all": {"normalize": True, "scale": 4.0, "logit_soft_cap": 2.0},
}
EACH_FORM = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
# Forms of the tests that compile a model in the short suite. These tests take a second each.
COMPILED = ["cosine, learned scale", "all"]
EACH_SHARDING = pytest.mark.parametrize("num_shards", [1, 3])


def _values():
    draws = np.random.default_rng(3)
    features = draws.normal(size=(BATCH, DIM)).astype("float32")
    rows = draws.normal(size=(NUM_CLASSES, DIM)).astype("float32")
    rows[4] = 0
    return features, rows, draws.normal(size=NUM_CLASSES).astype("float32")


def _head(form, num_shards=1, sampler=None, use_bias=True):
    _, rows, bias = _values()
    head = tflo.layers.LargeOutput(
        NUM_CLASSES,
        sampler,
        use_bias,
        embeddings_initializer=rows,
        bias_initializer=bias,
        num_shards=num_shards,
        **form,
    )
    head.build((None, DIM))
    return head


def _expected(form):
    return reference.logits(*_values(), **form)


@EACH_FORM
@EACH_SHARDING
def test_logits_and_best_classes_are_those_of_numpy(form, num_shards):
    head, expected = _head(form, num_shards), _expected(form)
    features = _values()[0]
    np.testing.assert_allclose(head(features), expected, rtol=1e-4, atol=1e-4)
    order = np.argsort(-expected, axis=1)[:, :4]
    for allowed in (None, np.arange(NUM_CLASSES)):
        scores, ids = head.top_k(features, 4, allowed=allowed)
        np.testing.assert_array_equal(ids, order)
        best = np.take_along_axis(expected, order, axis=1)
        np.testing.assert_allclose(scores, best, rtol=1e-4, atol=1e-4)


@EACH_FORM
@EACH_SHARDING
@pytest.mark.parametrize("training", [False, True])
def test_exact_softmax_loss_and_its_gradients_are_those_of_dense_tensorflow(
    form, num_shards, training
):
    head, features = _head(form, num_shards), tf.constant(_values()[0])
    found = _loss_and_gradients(tflo.losses.SoftmaxLoss(), head, features, training)
    dense = _loss_and_gradients(_dense_softmax, head, features, training)
    _assert_close(found, dense)


@EACH_FORM
@EACH_SHARDING
def test_sampled_gradients_are_sparse_and_those_of_dense_tensorflow(form, num_shards):
    head, features = _head(form, num_shards, _AllClasses()), tf.constant(_values()[0])
    found = _loss_and_gradients(tflo.losses.SampledSoftmaxLoss(), head, features, True)
    assert all(isinstance(one, tf.IndexedSlices) for one in found[1][: 2 * num_shards])
    _assert_close(found, _loss_and_gradients(_dense_softmax, head, features, True))


class _AllClasses(tflo.samplers.Sampler):
    def draw(self, features, labels, layer):
        ids = tf.range(NUM_CLASSES, dtype=tf.int64)
        ones = tf.ones(tf.shape(labels))
        return tflo.samplers.SampledValues(ids, ones, tf.ones([NUM_CLASSES]))


def _loss_and_gradients(loss, head, features, training):
    variables = [one.value for one in head.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(features)
        value = loss(LABELS, head(features, training=training))
    gradients = tape.gradient(value, [*variables, features])
    return value, gradients


def _dense_softmax(labels, logits):
    present = labels >= 0
    targets = np.zeros((BATCH, NUM_CLASSES), "float32")
    for example, label in itertools.product(range(BATCH), range(2)):
        if present[example, label]:
            targets[example, labels[example, label]] += 1 / present[example].sum()
    losses = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
    return tf.reduce_sum(losses * targets.sum(axis=1)) / present.any(axis=1).sum()


def _assert_close(found, expected):
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4)
    for one, other in zip(found[1], expected[1], strict=True):
        one, other = (tf.convert_to_tensor(each) for each in (one, other))
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "name, num_shards",
    slow_but([(COMPILED[0], 1)], itertools.product(FORMS, [1, 3])),
)
def test_evaluate_reports_the_ranks_and_the_perplexity_of_numpy(name, num_shards):
    form, inputs = FORMS[name], keras.Input([DIM])
    model = keras.Model(inputs, _head(form, num_shards)(inputs))
    metrics = [tflo.metrics.PrecisionAtK(1), tflo.metrics.Perplexity()]
    model.compile(loss=tflo.losses.SoftmaxLoss(), metrics=metrics)
    labels = np.argsort(-_expected(form), axis=1)[:, 0]
    labels[1:3] = [5, 36]
    found = model.evaluate(_values()[0], labels, verbose=0, return_dict=True)
    expected = reference.cross_entropies(_expected(form), labels).mean()
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-4)
    np.testing.assert_allclose(found["perplexity"], np.exp(expected), rtol=1e-3)
    np.testing.assert_allclose(found["precision_at_1"], 4 / 6, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, ops",
    slow_but(
        [(COMPILED[0], "core")],
        itertools.product(FORMS, ["core", "custom"]),
    ),
)
def test_saved_files_exports_and_indexes_give_the_scores_of_numpy(name, ops, tmp_path):
    form, inputs = FORMS[name], keras.Input([DIM], name="features")
    head = _head(form)
    model = keras.Model(inputs, head(inputs))
    features, expected = _values()[0], _expected(form)
    best = -np.sort(-expected, axis=1)[:, :3]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(features), expected, rtol=1e-4, atol=1e-4)
    assert loaded.layers[-1].get_config() == {**head.get_config()} | {
        "embeddings_initializer": loaded.layers[-1].get_config()["embeddings_initializer"],
        "bias_initializer": loaded.layers[-1].get_config()["bias_initializer"],
    }
    index = tflo.retrieval.InvertedFileIndex(num_probes=NUM_CLASSES)
    index.build(head.class_embeddings(), head.bias.numpy())
    scores, _ = tflo.retrieval.predict_top_k(model, features, 3, index=index, verbose=0)
    np.testing.assert_allclose(scores, best, rtol=1e-4, atol=1e-4)
    for number, chosen in enumerate((None, index)):
        path = str(tmp_path / str(number))
        tflo.serving.export(model, path, k=3, ops=ops, index=chosen)
        answer = tf.saved_model.load(path).signatures["serving_default"]
        scores = answer(features=tf.constant(features))["scores"]
        np.testing.assert_allclose(scores, best, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    slow_but(
        ["kernel_tree"],
        ["uniform", "inverted_file", "lsh", "kernel_tree", "top_k"],
    ),
)
def test_each_kind_of_sampler_trains_all_forms_at_once(name):
    inputs = keras.Input([DIM])
    form = {"normalize": True, "scale": "learned", "logit_soft_cap": 20.0}
    model = keras.Model(inputs, tflo.layers.LargeOutput(NUM_CLASSES, name, **form)(inputs))
    model.compile(tflo.optimizers.LazyAdam(0.05), tflo.losses.SampledSoftmaxLoss())
    features = _values()[0]
    losses = model.fit(features, np.arange(BATCH), epochs=20, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 2


def test_resized_layers_keep_the_learned_scale():
    inputs = keras.Input([DIM])
    model = keras.Model(inputs, _head({"normalize": True, "scale": "learned"})(inputs))
    model.layers[-1].logit_scale.assign(1.0)
    resized = tflo.resize_classes(model, NUM_CLASSES + 2)
    features = _values()[0]
    np.testing.assert_allclose(
        resized(features)[:, :NUM_CLASSES], model(features), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"normalize": 1},
        {"scale": 0},
        {"scale": float("nan")},
        {"scale": "64"},
        {"logit_soft_cap": 0},
        {"logit_soft_cap": -1.0},
    ],
)
def test_a_wrong_argument_is_an_error_that_says_what_was_received(arguments):
    (name,) = arguments
    with pytest.raises(ValueError, match=f"`{name}` must be .*Received"):
        tflo.layers.LargeOutput(NUM_CLASSES, **arguments)


def test_joining_models_with_cosine_logits_is_an_error():
    inputs = keras.Input([DIM])
    models = [keras.Model(inputs, _head({"normalize": True})(inputs)) for _ in range(2)]
    with pytest.raises(ValueError, match="average the scores"):
        tflo.join_models(models)


@EACH_FORM
@EACH_SHARDING
def test_scores_that_rank_classes_have_the_bits_of_the_ranks(form, num_shards):
    head, features = _head(form, num_shards), _values()[0]
    order = np.argsort(-_expected(form), axis=1)
    labels = tf.constant(order[:, :5])
    queries = head.queries(tf.constant(features))
    scores = head.class_matrix.ranked_scores(queries, labels)
    assert np.all(np.diff(scores, axis=1) < 0)
    ranks = head.class_matrix.statistics(queries, labels).ranks
    np.testing.assert_array_equal(ranks, np.tile(np.arange(5), (BATCH, 1)))
