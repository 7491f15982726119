"""Tied embeddings: class embeddings that are the table of an embedding layer."""

import itertools
import zipfile

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import replicas
from tests.slow import slow_but

WORDS, DIM, STEPS = 60, 8, 6
RNG = np.random.default_rng(0)
IDS = RNG.integers(0, WORDS, (96, STEPS + 1))
X, Y = IDS[:, :-1], IDS[:, 1:]
TABLES = {
    "embedding": lambda: keras.layers.Embedding(WORDS, DIM, name="table"),
    "reversible": lambda: keras.layers.ReversibleEmbedding(WORDS, DIM, name="table"),
    "bfloat16": lambda: keras.layers.Embedding(WORDS, DIM, dtype="bfloat16", name="table"),
}


def language_model(table, output):
    ids = keras.Input([STEPS], dtype="int32")
    return keras.Model(ids, output(keras.layers.Dense(DIM, "tanh")(table(ids))))


def tied(make_table=TABLES["embedding"], sampler="uniform", run_eagerly=True):
    keras.utils.set_random_seed(1)
    table = make_table()
    head = tflo.layers.LargeOutput(WORDS, sampler, embeddings=table, name="head")
    model = language_model(table, head)
    model.compile(
        tflo.optimizers.LazyAdam(1e-2),
        tflo.losses.SampledSoftmaxLoss(),
        metrics=[tflo.metrics.PrecisionAtK(1)],
        run_eagerly=run_eagerly,
    )
    model.optimizer.build(model.trainable_variables)  # avoids a second trace
    return model


class SharedTable(keras.layers.Layer):
    """The same output in plain Keras: a product with the variable of an embedding layer."""

    def __init__(self, table):
        super().__init__()
        self.table = table
        self.bias = self.add_weight(shape=[WORDS], initializer="zeros")

    def call(self, features):
        return tf.matmul(features, self.table.embeddings, transpose_b=True) + self.bias


@pytest.mark.parametrize(
    "make_table",
    [TABLES["embedding"], pytest.param(TABLES["reversible"], marks=pytest.mark.slow)],
    ids=["embedding", "reversible"],
)
def test_losses_equal_those_of_plain_keras_with_a_shared_variable(make_table):
    ours = tied(make_table)
    ours.compile(tflo.optimizers.LazySGD(0.5), tflo.losses.SoftmaxLoss())
    keras.utils.set_random_seed(1)
    table = make_table()
    plain = language_model(table, SharedTable(table))
    plain.set_weights([w for w in ours.get_weights() if w.dtype == np.float32])
    plain.compile(
        keras.optimizers.SGD(0.5),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        run_eagerly=True,
    )
    options = {"epochs": 4, "batch_size": 32, "shuffle": False, "verbose": 0}
    losses = [model.fit(X, Y, **options).history["loss"] for model in (ours, plain)]
    np.testing.assert_allclose(*losses, rtol=1e-5)


@pytest.mark.parametrize("name", slow_but(["embedding"], TABLES))
def test_there_is_one_table_in_memory_and_in_the_file(name, tmp_path):
    model = tied(TABLES[name])
    shapes = [tuple(weight.shape) for weight in model.trainable_variables]
    assert shapes.count((WORDS, DIM)) == 1
    model.fit(X, Y, verbose=0)
    model.save(tmp_path / "model.keras")
    found = []
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        with archive.open("model.weights.h5") as file, h5py.File(file) as weights:
            weights["layers"].visititems(lambda _, one: found.append(getattr(one, "shape", 0)))
    assert found.count((WORDS, DIM)) == 1
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.get_layer("head").embeddings is loaded.get_layer("table").embeddings
    np.testing.assert_array_equal(loaded(X), model(X))


@pytest.mark.parametrize("name", ["embedding", "bfloat16"])
def test_both_gradients_are_sparse_and_change_only_rows_that_occur(name):
    model = tied(TABLES[name], tflo.samplers.UniformSampler(5, seed=3))
    before = model.get_layer("head").embeddings.numpy()
    with tf.GradientTape() as tape:
        loss = model.compute_loss(X[:2], Y[:2], model(X[:2], training=True))
    (gradient,) = tape.gradient(loss, [model.get_layer("table").embeddings.value])
    assert isinstance(gradient, tf.IndexedSlices)
    ids = np.unique(gradient.indices)
    assert set(np.unique(IDS[:2])) <= set(ids)
    model.optimizer.apply([gradient], [model.get_layer("table").embeddings])
    moved = np.flatnonzero((model.get_layer("head").embeddings.numpy() != before).any(axis=1))
    assert set(moved) <= set(ids) and len(moved) < WORDS


@pytest.mark.slow  # integration/resume_test.py has one short case
@pytest.mark.parametrize(
    "table, sampler",
    slow_but(
        [("embedding", "inverted_file")],
        itertools.product(
            ["embedding", "bfloat16"], ["inverted_file", "kernel_tree", "lsh", "top_k"]
        ),
    ),
)
def test_a_resumed_run_equals_an_uninterrupted_one(table, sampler, tmp_path):
    options = {"batch_size": 32, "shuffle": False, "verbose": 0}
    model = tied(TABLES[table], sampler)
    model.fit(X, Y, **options)
    model.save(tmp_path / "model.keras")
    resumed = keras.models.load_model(tmp_path / "model.keras")
    for one in (model, resumed):
        one.fit(X, Y, **options)
    for ours, theirs in zip(model.weights, resumed.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=ours.path)


@pytest.mark.slow  # tests/pairs has mixed precision with the reference
@pytest.mark.parametrize(
    "policy", slow_but(["mixed_float16"], ["mixed_bfloat16", "mixed_float16"])
)
def test_mixed_precision_trains_the_float32_table(policy):
    keras.config.set_dtype_policy(policy)
    try:
        model = tied(run_eagerly=False)
        history = model.fit(X, Y, epochs=8, batch_size=32, verbose=0).history["loss"]
    finally:
        keras.config.set_dtype_policy("float32")
    assert model.get_layer("head").embeddings.dtype == "float32"
    assert history[-1] < history[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss, normalize",
    [
        (tflo.losses.SampledSoftmaxLoss, False),
        (tflo.losses.SampledSoftmaxLoss, True),
        (tflo.losses.NCELoss, False),
        (tflo.losses.SoftmaxLoss, False),
    ],
)
def test_a_table_in_bfloat16_trains_about_as_one_in_float32(loss, normalize):
    histories = []
    for dtype in ("bfloat16", "float32"):
        keras.utils.set_random_seed(1)
        table = keras.layers.Embedding(WORDS, DIM, dtype=dtype)
        head = tflo.layers.LargeOutput(
            WORDS,
            tflo.samplers.UniformSampler(20, seed=3),
            embeddings=table,
            normalize=normalize,
            embeddings_dtype="bfloat16" if dtype == "bfloat16" else None,
        )
        model = language_model(table, head)
        values = tf.cast(tf.random.stateless_uniform([WORDS, DIM], (1, 2)) - 0.5, tf.bfloat16)
        table.embeddings.assign(tf.cast(values, dtype))
        model.compile(tflo.optimizers.LazyAdam(1e-2), loss())
        before = model.evaluate(X, Y, verbose=0)
        losses = model.fit(X, Y, batch_size=32, epochs=6, shuffle=False, verbose=0)
        histories.append([before, *losses.history["loss"]])
        assert table.embeddings.dtype == head.embeddings.dtype == dtype
    np.testing.assert_allclose(histories[0][0], histories[1][0], rtol=1e-5)
    assert histories[1][-1] < histories[1][1], "the table learns in float32"
    np.testing.assert_allclose(*histories, rtol=0.1)


@pytest.mark.slow
def test_a_variable_can_be_tied_and_its_layer_saves_it(tmp_path):
    table = TABLES["embedding"]()
    table.build()
    head = tflo.layers.LargeOutput(WORDS, "uniform", embeddings=table.embeddings)
    model = language_model(table, head)
    model.compile(tflo.optimizers.LazyAdam(), tflo.losses.NCELoss(), run_eagerly=True)
    model.fit(X, Y, verbose=0)
    assert len(model.trainable_variables) == 4
    model.save_weights(tmp_path / "model.weights.h5")
    model.load_weights(tmp_path / "model.weights.h5")
    with pytest.raises(ValueError, match="embeddings=layer, not layer.embeddings"):
        model.save(tmp_path / "model.keras")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_embedding_bag_can_be_tied(dtype):
    bags = tflo.layers.EmbeddingBag(WORDS, DIM, padding_id=None, dtype=dtype)
    model = keras.Sequential([bags, tflo.layers.LargeOutput(WORDS, "uniform", embeddings=bags)])
    model.compile(tflo.optimizers.LazyAdam(), tflo.losses.NCELoss(), run_eagerly=True)
    model.fit(X, Y[:, -1], verbose=0)
    assert len(model.trainable_variables) == 2


@pytest.mark.slow
def test_two_replicas_keep_equal_tables():
    with replicas.two_replicas().scope():
        model = tied(run_eagerly=False)
    model.fit(X, Y, batch_size=32, verbose=0)
    parts = replicas.two_replicas().experimental_local_results(
        model.get_layer("table").embeddings.value
    )
    np.testing.assert_array_equal(*parts)


@pytest.mark.slow
def test_a_frozen_table_does_not_change():
    model = tied()
    model.get_layer("table").trainable = False
    loss = tflo.losses.SampledSoftmaxLoss()
    model.compile(tflo.optimizers.LazyAdam(0.1), loss, run_eagerly=True)
    before = model.get_layer("table").embeddings.numpy()
    model.fit(X, Y, verbose=0)
    np.testing.assert_array_equal(model.get_layer("head").embeddings, before)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"embeddings": np.zeros((WORDS, DIM))}, "`embeddings_initializer`"),
        ({"embeddings": keras.layers.Dense(3)}, "must be a layer with a table"),
        ({"embeddings": keras.layers.Embedding(9, DIM)}, "9 rows and num_classes=60"),
        (
            {"embeddings": TABLES["embedding"](), "embeddings_initializer": "zeros"},
            "Leave one of them out",
        ),
    ],
)
def test_invalid_embeddings_raise_an_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        tflo.layers.LargeOutput(WORDS, **arguments)


class LikeKerasHub(keras.layers.ReversibleEmbedding):
    """A subclass without code of its own, like keras-hub's `ReversibleEmbedding`."""


class WithOwnCall(keras.layers.ReversibleEmbedding):
    def call(self, inputs, reverse=False):
        return super().call(inputs, reverse) * (2.0 if reverse else 1.0)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (LikeKerasHub(WORDS, DIM), None),
        (LikeKerasHub(WORDS, DIM, reverse_dtype="float32"), None),
        (LikeKerasHub(WORDS, DIM, logit_soft_cap=30.0), "same logit_soft_cap. Received: 30.0"),
        (LikeKerasHub(WORDS, DIM, tie_weights=False), "has tie_weights=False"),
        (LikeKerasHub(WORDS, DIM, tie_weights=False, logit_soft_cap=5.0), "tie_weights=False"),
        (WithOwnCall(WORDS, DIM), "WithOwnCall .* defines `call.reverse=True.` itself"),
    ],
)
def test_logits_equal_those_of_the_reversed_layer_or_it_raises_an_error(table, message):
    table.build()
    if message is not None:
        with pytest.raises(ValueError, match=message):
            tflo.layers.LargeOutput(WORDS, embeddings=table)
        return
    features = RNG.standard_normal((5, DIM)).astype("float32")
    head = tflo.layers.LargeOutput(WORDS, embeddings=table, use_bias=False)
    np.testing.assert_allclose(head(features), table(features, reverse=True), rtol=1e-6)


@pytest.mark.parametrize(
    "of_table, of_head, message",
    [
        (
            "float32",
            "bfloat16",
            "must be bfloat16. Received: .* float32. .* leave `embeddings_",
        ),
        ("bfloat16", "float32", "must be float32. Received: .* bfloat16. .* leave"),
        ("float16", None, "must be float32 or bfloat16. Received: .* float16. .*'float32'"),
        ("float16", "bfloat16", "must be bfloat16. Received: .* float16. .*dtype='bfloat16'"),
    ],
)
def test_tables_of_other_dtypes_raise_an_error(of_table, of_head, message):
    table = keras.layers.Embedding(WORDS, DIM, dtype=of_table)
    table.build()
    head = tflo.layers.LargeOutput(WORDS, embeddings=table, embeddings_dtype=of_head)
    with pytest.raises(ValueError, match=message):
        head.build((None, DIM))


def test_an_optimizer_of_keras_for_a_table_in_bfloat16_raises_an_error():
    model = tied(TABLES["bfloat16"])
    model.compile("adam", tflo.losses.SampledSoftmaxLoss(), run_eagerly=True)
    with pytest.raises(ValueError, match="class rows in bfloat16.*rounds at random"):
        model.fit(X, Y, verbose=0)


def test_features_of_another_width_raise_an_error():
    table = TABLES["embedding"]()
    table.build()
    head = tflo.layers.LargeOutput(WORDS, embeddings=table)
    with pytest.raises(ValueError, match="features must be 8 wide. Received: .* width 5"):
        head.build((None, 5))
    head.build((None, DIM))  # the failed build left nothing behind


def test_quantizing_the_table_before_or_after_the_build_raises_an_error():
    table = TABLES["embedding"]()
    table.build()
    table.quantize("int8")
    with pytest.raises(ValueError, match="without quantization"):
        tflo.layers.LargeOutput(WORDS, embeddings=table).build((None, DIM))
    model = tied()
    model(X[:2])
    model.get_layer("table").quantize("int8")
    with pytest.raises(ValueError, match="without quantization"):
        model(X[:2])


def test_a_low_precision_bias_raises_an_error():
    table = TABLES["embedding"]()
    head = tflo.layers.LargeOutput(WORDS, embeddings=table, dtype="bfloat16")
    with pytest.raises(ValueError, match="'bias' of dtype bfloat16"):
        head(table(X[:2]))
        head.top_k(np.zeros((1, DIM)), 1)
