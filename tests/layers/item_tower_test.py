"""`LargeOutput(embeddings=ItemTower(...))`: class rows that are computed from features."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.slow import slow_but

N, WIDTH, DIM, BATCH = 30, 5, 4, 12
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(N, WIDTH)).astype("float32")
X = RANDOM.normal(size=(BATCH, 3)).astype("float32")
Y = RANDOM.integers(0, N, BATCH)


def _tower(features=FEATURES, encoder_name="item_encoder", **options):
    encoder = keras.layers.Dense(DIM, "tanh", name=encoder_name)
    return tflo.layers.ItemTower(features, encoder, **options)


def _model(embeddings, num_classes=N, sampler="uniform", **options):
    output = tflo.layers.LargeOutput(
        num_classes,
        sampler and tflo.samplers.UniformSampler(8, seed=3),
        embeddings=embeddings,
        bias_initializer=np.linspace(-1, 1, num_classes),
        name="output",
        **options,
    )
    return keras.Sequential([keras.Input([3]), keras.layers.Dense(DIM, name="query"), output])


def _compiled(model, loss, rate=0.5):
    model.compile(keras.optimizers.SGD(rate), loss, metrics=[tflo.metrics.PrecisionAtK(3)])
    return model


@pytest.mark.parametrize(
    "loss",
    slow_but(
        [tflo.losses.SampledSoftmaxLoss],
        [tflo.losses.SampledSoftmaxLoss, tflo.losses.SoftmaxLoss],
    ),
)
def test_a_tower_of_one_hot_features_trains_like_a_table(loss):
    keras.utils.set_random_seed(1)
    encoder = keras.layers.Dense(DIM, use_bias=False)
    tower = tflo.layers.ItemTower(np.eye(N), encoder)
    computed, table = _model(tower), _model(None)
    table.get_layer("query").set_weights(computed.get_layer("query").get_weights())
    table.get_layer("output").embeddings.assign(encoder.kernel)
    results = []
    for model in (computed, table):
        _compiled(model, loss())
        losses = model.fit(X, Y, 4, epochs=2, shuffle=False, verbose=0).history["loss"]
        results.append([*losses, *model.evaluate(X, Y, verbose=0)])
    np.testing.assert_allclose(*results, rtol=1e-5)
    np.testing.assert_allclose(encoder.kernel, table.get_layer("output").embeddings, atol=1e-6)
    np.testing.assert_allclose(
        computed.predict(X, verbose=0), table.predict(X, verbose=0), 1e-5
    )


@pytest.mark.parametrize("ids", [[[5], [5], [-1]], [[5, 5], [7, -1], [2, 5]]])
def test_repeated_classes_have_the_logits_and_gradients_of_gathered_rows(ids):
    output = _model(_tower()).get_layer("output")
    ids, shared = tf.constant(ids, tf.int64), tf.constant([7, 1, 5], tf.int64)
    h = tf.constant(RANDOM.normal(size=[3, DIM]), tf.float32)
    kernel = output.tower.encoder.kernel

    def results(function):
        with tf.GradientTape() as tape:
            tape.watch(h)
            found = function()
            total = sum(tf.reduce_sum(tf.sin(x)) for x in found)
        return [*found, *tape.gradient(total, [h, kernel.value])]

    def of_layer():
        logits, rows, _ = output.class_matrix.dots_and_rows(h, ids, shared)
        return tf.where(ids >= 0, logits, 0), rows

    def expected():
        rows = output.tower.encoder(FEATURES)
        own = tf.gather(rows, tf.maximum(ids, 0))
        logits = tf.einsum("bld,bd->bl", own, h) + tf.gather(output.bias, tf.maximum(ids, 0))
        return tf.where(ids >= 0, logits, 0), tf.gather(rows, shared)

    for one, other in zip(results(of_layer), results(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


NORMALIZED, CAPPED = {"normalize": True, "scale": 5.0}, {"logit_soft_cap": 2.0}
BOTH = {**NORMALIZED, **CAPPED}


@pytest.mark.slow
@pytest.mark.parametrize("options", slow_but([BOTH], [NORMALIZED, CAPPED, BOTH]))
def test_answers_follow_the_current_weights(options, tmp_path):
    keras.utils.set_random_seed(2)
    model = _model(_tower(free_rows=True), **options)
    output = model.get_layer("output")
    _compiled(model, tflo.losses.SampledSoftmaxLoss())
    for _ in range(2):
        model.fit(X, Y, verbose=0)
        model.get_layer("query").kernel.assign_add(tf.ones([3, DIM]))
        logits = model.predict(X, verbose=0)
        rows = output.tower.encoder(FEATURES) + output.tower.free_rows
        unit = tf.math.l2_normalize(rows, axis=1) if "normalize" in options else rows
        np.testing.assert_allclose(output.class_embeddings(), unit, atol=1e-5)
        best = np.argsort(-logits, axis=1)[:, :3]
        loss, precision = model.evaluate(X, Y, verbose=0)
        expected = tf.nn.sparse_softmax_cross_entropy_with_logits(Y, logits)
        np.testing.assert_allclose(loss, np.mean(expected), rtol=1e-4)
        np.testing.assert_allclose(precision, (best == Y[:, np.newaxis]).any(axis=1).mean() / 3)
        np.testing.assert_array_equal(tflo.retrieval.predict_top_k(model, X, 3)[1], best)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(X, verbose=0), logits, rtol=1e-6)
    for ops in ("core", "custom"):
        path = tmp_path / ops
        tflo.serving.export(model, path, k=3, ops=ops)
        signature = tf.saved_model.load(path).signatures["serving_default"]
        (name,) = signature.structured_input_signature[1]
        np.testing.assert_array_equal(signature(**{name: X})["ids"], best)
        stored = tf.train.load_checkpoint(path / "variables" / "variables")
        shapes = sorted(stored.get_variable_to_shape_map().values())
        assert [N, DIM] in shapes and [N, WIDTH] not in shapes  # rows, but no features


def test_one_layer_encodes_the_inputs_and_the_classes_also_after_loading(tmp_path):
    # All positive, so that no sum cancels.
    positive = keras.initializers.RandomUniform(0.1, 1.0)
    bag = tflo.layers.EmbeddingBag(20, DIM, embeddings_initializer=positive)
    words = RANDOM.integers(0, 20, [N, 3])
    output = tflo.layers.LargeOutput(N, "uniform", embeddings=tflo.layers.ItemTower(words, bag))
    inputs = keras.Input([2], dtype="int64")
    model = keras.Model(inputs, output(bag(inputs)))
    assert len(model.trainable_weights) == 2  # the table and the biases
    logits = model(words[:5, :2])
    np.testing.assert_allclose(logits, bag(words[:5, :2]) @ tf.transpose(bag(words)), rtol=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[-1].tower.encoder is loaded.layers[1]
    np.testing.assert_array_equal(loaded(words[:5, :2]), logits)


@pytest.mark.slow  # long training
def test_margins_of_all_classes_train_the_tower():
    tower = _tower()
    model = _model(tower, sampler=None, normalize=True, use_bias=False)
    before = np.array(model.get_layer("output").class_embeddings())
    _compiled(model, tflo.losses.MarginSoftmaxLoss())
    model.fit(X, Y, verbose=0)
    assert np.abs(model.get_layer("output").class_embeddings() - before).max() > 1e-3


def test_new_classes_need_features_but_no_training():
    keras.utils.set_random_seed(3)
    model = _model(_tower())
    more = np.concatenate([FEATURES, FEATURES[:2]])
    larger = _model(_tower(more), N + 2, use_bias=False)
    larger.get_layer("query").set_weights(model.get_layer("query").get_weights())
    encoders = [one.get_layer("output").tower.encoder for one in (larger, model)]
    encoders[0].set_weights(encoders[1].get_weights())
    logits = larger.predict(X, verbose=0)
    np.testing.assert_allclose(logits[:, N:], logits[:, :2], rtol=1e-5)


@pytest.mark.slow
def test_several_features_and_sparse_gradients_of_free_rows():
    inputs = {
        "word": keras.Input([], dtype="int64", name="word"),
        "size": keras.Input([1], name="size"),
    }
    word = keras.layers.Embedding(7, DIM)(inputs["word"])
    encoder = keras.Model(inputs, word + keras.layers.Dense(DIM)(inputs["size"]))
    features = {"word": np.arange(N) % 7, "size": FEATURES[:, :1]}
    tower = tflo.layers.ItemTower(features, encoder, free_rows=True)
    model = _model(tower)
    _compiled(model, tflo.losses.SampledSoftmaxLoss())
    model.optimizer = None
    model.compile(tflo.optimizers.LazyAdam(0.1), tflo.losses.SampledSoftmaxLoss())
    model.fit(X[:1], Y[:1], verbose=0)
    assert 1 <= np.any(tower.free_rows, axis=1).sum() <= 9  # the label and 8 samples


def test_rows_that_are_not_finite_raise_an_error_before_they_reach_the_weights():
    encoder = keras.Sequential([keras.layers.Dense(DIM), keras.layers.Lambda(tf.math.log)])
    model = _model(tflo.layers.ItemTower(FEATURES, encoder))
    _compiled(model, tflo.losses.SampledSoftmaxLoss())
    before = [weight.numpy() for weight in model.trainable_weights]
    calls = {
        "a training step": lambda: model.train_on_batch(X, Y),
        "evaluate": lambda: model.test_on_batch(X, Y),
        "top_k": lambda: tflo.retrieval.predict_top_k(model, X, 3),
        "top_k again": lambda: tflo.retrieval.predict_top_k(model, X, 3),
        "export": lambda: tflo.serving.export(model, "not written"),
    }
    for call in calls.values():
        with pytest.raises(tf.errors.InvalidArgumentError, match="layer output must compute"):
            call()
    for was, now in zip(before, model.trainable_weights, strict=True):
        np.testing.assert_array_equal(now, was)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: _tower(["a", "b"]), "of numbers"),
        (lambda: _tower([FEATURES, FEATURES[:3]]), "one row per class"),
        (lambda: _tower(FEATURES * np.nan), "finite"),
        (lambda: tflo.layers.ItemTower(FEATURES, "dense"), "Keras layer"),
        (lambda: _model(_tower(FEATURES[:7])), "ItemTower of 7 classes"),
        (lambda: _model(_tower(), embeddings_initializer="zeros"), "embeddings_initializer"),
        (lambda: _model(_tower(), num_shards=2), "num_shards"),
        (
            lambda: _model(tflo.layers.ItemTower(FEATURES, keras.layers.Dense(3))),
            "must return rows",
        ),
        (
            lambda: keras.Sequential(
                [
                    keras.Input([DIM]),
                    tflo.layers.LargeOutput(N, "inverted_file", embeddings=_tower()),
                ]
            ),
            "cannot search them",
        ),
        (lambda: tflo.resize_classes(_model(_tower()), N + 1), "Cannot resize"),
        (
            lambda: _compiled(
                _model(_tower(), dtype="float64"), tflo.losses.SampledSoftmaxLoss()
            ).train_on_batch(X, Y),
            "float32 weights in layer 'output'. Received: 'bias' of dtype float64",
        ),
    ],
)
def test_wrong_towers_raise_an_error(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_clone_shares_the_encoder_as_the_model_does():
    words = RANDOM.integers(1, 20, [N, 2])
    bag = tflo.layers.EmbeddingBag(20, DIM)
    output = tflo.layers.LargeOutput(N, "uniform", embeddings=tflo.layers.ItemTower(words, bag))
    model = keras.Sequential([keras.Input([2], dtype="int64"), bag, output])
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    assert clone.layers[-1].tower.encoder is clone.layers[0]
    np.testing.assert_array_equal(clone(words[:5]), model(words[:5]))
    own = keras.models.clone_model(_model(_tower(encoder_name="query")))
    assert own.layers[-1].tower.encoder is not own.layers[0]  # of the same name, but another


@pytest.mark.slow
def test_a_checkpoint_without_features_needs_a_model_with_features(tmp_path, monkeypatch):
    model = _model(_tower(free_rows=True))
    with monkeypatch.context() as earlier:  # versions that did not track the features
        children = tflo.layers.ItemTower._trackable_children
        earlier.setattr(
            tflo.layers.ItemTower,
            "_trackable_children",
            lambda *args, **options: {
                name: child
                for name, child in children(*args, **options).items()
                if not name.startswith("features")
            },
        )
        path = tf.train.Checkpoint(model=model).write(tmp_path / "checkpoint")
    with pytest.raises(ValueError, match="made from a config.*with ItemTower.features"):
        tf.train.Checkpoint(model=keras.models.clone_model(model)).read(path)
    built = _model(_tower(free_rows=True))
    tf.train.Checkpoint(model=built).read(path).expect_partial()
    np.testing.assert_array_equal(built(X), model(X))
