"""`LargeOutput(embeddings_dtype="bfloat16")`: class rows in 16 bits."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.integration.graphs import tensors_of_size
from tests.losses import table as loss_table
from tests.samplers import sampler_table
from tests.slow import slow_but
from tf_largeout.ops import devices
from tf_largeout.variables import class_rows, saved_weights

N, DIM, BATCH, STEPS = 60, 8, 20, 6
RANDOM = np.random.default_rng(0)
# Each class has a direction, and the features of an example are near that of its class.
DIRECTIONS = RANDOM.normal(size=(N, DIM))
Y = np.tile(np.arange(N), 10)
X = (DIRECTIONS[Y] + 0.1 * RANDOM.normal(size=(len(Y), DIM))).astype("float32")

OPTIMIZERS = {
    "adam": lambda: tflo.optimizers.LazyAdam(0.03),
    "adam_row_momentum": lambda: tflo.optimizers.LazyAdam(0.03, row_beta_1=0.9),
    "adagrad": lambda: tflo.optimizers.LazyAdagrad(0.5, initial_accumulator_value=0.0),
    "rowwise_adagrad": lambda: tflo.optimizers.RowwiseAdagrad(0.5),
    "sgd": lambda: tflo.optimizers.LazySGD(4.0),
    "nesterov": lambda: tflo.optimizers.LazySGD(0.5, momentum=0.9, nesterov=True),
}


def layer(num_classes=N, sampler="uniform", embeddings_dtype="bfloat16", **options):
    keras.utils.set_random_seed(5)
    if sampler == "uniform":
        sampler = tflo.samplers.UniformSampler(16, seed=3)
    return tflo.layers.LargeOutput(
        num_classes, sampler, embeddings_dtype=embeddings_dtype, name="output", **options
    )


def model_of(output):
    return keras.Sequential([keras.Input([DIM]), output])


def compiled(output, optimizer="adam", loss=None, **options):
    model = model_of(output)
    optimizer = OPTIMIZERS[optimizer]() if isinstance(optimizer, str) else optimizer
    loss = tflo.losses.SampledSoftmaxLoss() if loss is None else loss
    metrics = [tflo.metrics.PrecisionAtK(1)]
    model.compile(optimizer, loss, metrics=metrics, **options)
    return model


def fit(model, first=0, last=STEPS):
    some = slice(first * BATCH, last * BATCH)
    return model.fit(X[some], Y[some], BATCH, shuffle=False, verbose=0)


def rows_of(model):
    return np.asarray(model.get_layer("output").class_embeddings())


def state(model):
    variables = [*model.variables, *model.optimizer.variables]
    return [
        (one.path, np.asarray(one).astype("float64"))
        for one in variables
        if "metrics" not in one.path
    ]


def assert_same_state(model, other):
    for (path, one), (_, other_one) in zip(state(model), state(other), strict=True):
        np.testing.assert_array_equal(one, other_one, err_msg=path)


def in_bfloat16(values):
    return tf.cast(tf.cast(values, tf.bfloat16), tf.float32).numpy()


@pytest.mark.parametrize("num_shards", [1, 3])
@pytest.mark.parametrize(
    "initializer", [None, "he_normal", "ones", np.linspace(-1, 1, N * DIM).reshape(N, DIM)]
)
def test_first_rows_are_the_rounded_ones_of_float32(num_shards, initializer, monkeypatch):
    monkeypatch.setattr(class_rows, "_BLOCK", 10 * DIM)  # several blocks
    found, exact = (
        rows_of(
            model_of(
                layer(
                    embeddings_dtype=dtype,
                    embeddings_initializer=initializer,
                    num_shards=num_shards,
                )
            )
        )
        for dtype in ("bfloat16", None)
    )
    np.testing.assert_array_equal(found, in_bfloat16(exact))


def test_any_initializer_is_supported():
    def initializer(shape, dtype=None):
        assert dtype == "float32"
        return tf.fill(shape, 0.3)

    found = rows_of(model_of(layer(embeddings_initializer=initializer)))
    np.testing.assert_array_equal(found, np.full((N, DIM), in_bfloat16(0.3)))


def test_weights_are_in_bfloat16_and_slots_and_biases_in_float32():
    model = compiled(layer(), run_eagerly=True)
    fit(model)
    assert model.get_layer("output").embeddings.dtype == "bfloat16"
    assert model.get_layer("output").bias.dtype == "float32"
    dtypes = {one.dtype for one in model.optimizer.variables if len(one.shape) == 2}
    assert dtypes == {"float32"}


@pytest.mark.slow
@pytest.mark.parametrize("num_shards", slow_but([2], [1, 2]))
def test_no_tensor_of_a_training_step_grows_with_the_number_of_classes(num_shards):
    num_classes = 2018
    model = compiled(layer(num_classes, num_shards=num_shards), run_eagerly=True)
    data = tf.constant(X[:8]), tf.constant(Y[:8])
    model.train_on_batch(*data)
    step = tf.function(model.train_step).get_concrete_function(data)
    assert tensors_of_size(step, num_classes // num_shards) == []


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_each_optimizer_learns_as_with_float32(optimizer):
    results = []
    for dtype in ("bfloat16", None):
        model = compiled(layer(embeddings_dtype=dtype), optimizer)
        model.fit(X, Y, BATCH, epochs=4, verbose=0)
        results.append(model.evaluate(X, Y, verbose=0, return_dict=True))
    assert results[1]["precision_at_1"] > 0.9, "the problem is learned in float32"
    assert abs(results[0]["precision_at_1"] - results[1]["precision_at_1"]) < 0.05
    np.testing.assert_allclose(results[0]["loss"], results[1]["loss"], rtol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", slow_but(["nesterov"], OPTIMIZERS))
def test_exact_losses_train_as_with_float32(optimizer):
    results = []
    for dtype in ("bfloat16", None):
        loss = tflo.losses.SoftmaxLoss()
        model = compiled(layer(embeddings_dtype=dtype), optimizer, loss, run_eagerly=True)
        fit(model)
        results.append(rows_of(model))
    moved = np.abs(results[1] - rows_of(model_of(layer(embeddings_dtype=None)))).max()
    # Each step rounds a number below 4 to one at most 2^-7 of it away.
    assert np.abs(results[0] - results[1]).max() < max(0.02 * np.abs(results[1]).max(), 0.05)
    assert moved > 0.01


def test_a_dense_gradient_takes_one_float32_step_and_rounds():
    options = {"loss": tflo.losses.SoftmaxLoss(), "run_eagerly": True}
    models = [
        compiled(layer(embeddings_dtype=dtype), **options) for dtype in ("bfloat16", None)
    ]
    start = rows_of(models[0])
    models[1].get_layer("output").embeddings.assign(start)
    for model in models:
        model.train_on_batch(X[:BATCH], Y[:BATCH])
    exact = rows_of(models[1])
    below = np.abs(rows_of(models[0]) - exact)
    assert np.all(below <= np.abs(exact) / 128 + 1e-6)
    assert 0.3 < np.mean(np.abs(rows_of(models[0])) > np.abs(exact)) < 0.7


LOSSES = {
    "nce": tflo.losses.NCELoss,
    "absolute": tflo.losses.AbsoluteSoftmaxLoss,
    "smooth": lambda: tflo.losses.SampledSoftmaxLoss(label_smoothing=0.1),
    "exact": lambda: tflo.losses.SoftmaxLoss(label_smoothing=0.1),
    "keras": lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True),
}


@pytest.mark.parametrize("name", slow_but(["smooth"], LOSSES))
def test_gradients_are_float32_and_near_those_of_float32_rows(name):
    loss, gradients = LOSSES[name], []
    for dtype in ("bfloat16", None):
        model = compiled(layer(embeddings_dtype=dtype), loss=loss())
        output = model.get_layer("output")
        if dtype is None:
            output.embeddings.assign(gradients[0][1])
        with tf.GradientTape() as tape:
            value = model.loss(Y[:BATCH], model(X[:BATCH], training=True))
        gradient = tape.gradient(value, output.embeddings.value)
        gradients.append((gradient, rows_of(model)))
    dense = [tf.convert_to_tensor(one) for one, _ in gradients]
    if name != "keras":  # only a training step of Keras has our logits
        assert dense[0].dtype == tf.float32
    np.testing.assert_allclose(tf.cast(dense[0], tf.float32), dense[1], rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("name", slow_but(["black out"], loss_table.LOSSES))
def test_each_loss_has_the_value_and_the_gradient_of_equal_float32_rows(name):
    found = []
    for dtype in ("bfloat16", None):
        loss, rows = loss_table.LOSSES[name].loss(), in_bfloat16(DIRECTIONS)
        sampler = None if name == "softmax" else "uniform"
        output = layer(N, sampler, dtype, embeddings_initializer=rows)
        model_of(output).compile(OPTIMIZERS["sgd"](), loss)
        with tf.GradientTape() as tape:
            value = loss(Y[:BATCH], output(X[:BATCH], training=True))
        gradient = tf.convert_to_tensor(tape.gradient(value, output.embeddings.value))
        found.append((value, tf.cast(gradient, tf.float32)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer, num_shards, name",
    slow_but(
        [("rowwise_adagrad", 1, "uniform")],
        [
            *itertools.product(["adam", "rowwise_adagrad", "nesterov"], [1, 2], ["uniform"]),
            *itertools.product(["adam"], [1, 2], sampler_table.SEARCHES),
        ],
    ),
)
def test_a_resumed_run_equals_an_uninterrupted_one(optimizer, num_shards, name, tmp_path):
    def new():
        sampler = sampler_table.SAMPLERS[name](N, num_sampled=12, seed=3)
        return compiled(layer(sampler=sampler, num_shards=num_shards), optimizer)

    whole = new()
    fit(whole)
    part = new()
    fit(part, last=2)
    part.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_same_state(loaded, part)
    fit(loaded, first=2)
    assert_same_state(loaded, whole)
    path = tf.train.Checkpoint(model=part, optimizer=part.optimizer).save(tmp_path / "check")
    other = new()
    tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(path)
    fit(other, first=2)
    assert_same_state(other, whole)


@pytest.mark.parametrize("num_shards", [1, 2])
@pytest.mark.parametrize("to", ["bfloat16", None])
def test_weights_of_another_dtype_are_converted_with_one_warning(
    to, num_shards, tmp_path, caplog
):
    source = model_of(layer(embeddings_dtype=None if to else "bfloat16"))
    source.save_weights(tmp_path / "all.weights.h5")
    target = model_of(layer(embeddings_dtype=to, num_shards=num_shards))
    target.load_weights(tmp_path / "all.weights.h5")
    expected = in_bfloat16(rows_of(source)) if to else rows_of(source)
    np.testing.assert_array_equal(rows_of(target), expected)
    assert [one for one in caplog.messages if "class rows" in one] == [
        "The class rows of layer 'output' are "
        + (
            "float32 in the file and bfloat16 in the layer. They are converted to the nearest "
            "number."
            if to
            else "bfloat16 in the file and float32 in the layer. They are converted."
        )
    ]


@pytest.mark.parametrize("num_shards", [1, 2])
@pytest.mark.parametrize("to", ["bfloat16", None])
@pytest.mark.parametrize("with_optimizer", [False, True])
def test_a_checkpoint_of_another_dtype_is_an_error_that_changes_nothing(
    to, num_shards, with_optimizer, tmp_path
):
    source = model_of(layer(embeddings_dtype=None if to else "bfloat16"))
    target = model_of(
        layer(embeddings_dtype=to, num_shards=num_shards, bias_initializer="ones")
    )
    roots = [{"model": one} for one in (source, target)]
    if with_optimizer:  # TensorFlow then names the rows after its list of variables
        for root in roots:
            root["optimizer"] = tflo.optimizers.LazyAdam()
            root["optimizer"].build(root["model"].trainable_variables)
    path = tf.train.Checkpoint(**roots[0]).save(tmp_path / "check")
    before = target.get_weights()
    with pytest.raises(
        ValueError, match="'output' are .* Received: .* `load_weights` of yours"
    ):
        tf.train.Checkpoint(**roots[1]).restore(path)
    for one, other in zip(before, target.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shards", [(1, 3), (3, 1)])
@pytest.mark.parametrize("dtype", ["bfloat16", None])
def test_large_tables_are_saved_and_loaded_in_pieces(dtype, shards, tmp_path, monkeypatch):
    source = model_of(layer(embeddings_dtype=dtype, num_shards=shards[0]))
    target = model_of(
        layer(embeddings_dtype=dtype, num_shards=shards[1], embeddings_initializer="zeros")
    )
    monkeypatch.setattr(saved_weights, "_LARGE", 100)  # bytes
    monkeypatch.setattr(saved_weights, "_PIECE", 7 * DIM * 4)
    store = {}
    source.get_layer("output").save_own_variables(store)
    assert max(np.size(value) for value in store.values()) <= 14 * DIM
    source.save_weights(tmp_path / "all.weights.h5")
    monkeypatch.undo()
    target.load_weights(tmp_path / "all.weights.h5")
    np.testing.assert_array_equal(rows_of(target), rows_of(source))


def test_a_file_without_a_piece_is_an_error(monkeypatch):
    source = model_of(layer())
    monkeypatch.setattr(saved_weights, "_LARGE", 100)
    monkeypatch.setattr(saved_weights, "_PIECE", 7 * DIM * 2)
    store = {}
    source.get_layer("output").save_own_variables(store)
    names = [name for name in store if name.startswith("embeddings")]
    assert len(names) > 5
    del store[names[2]]
    before = rows_of(source)
    with pytest.raises(ValueError, match="has weights of the shapes"):
        source.get_layer("output").load_own_variables(store)
    np.testing.assert_array_equal(rows_of(source), before)


def test_config_keeps_the_dtype():
    config = layer().get_config()
    assert config["embeddings_dtype"] == "bfloat16"
    assert tflo.layers.LargeOutput.from_config(config).embeddings_dtype == "bfloat16"


@pytest.mark.slow
def test_resized_rows_stay_in_bfloat16():
    model = compiled(layer())
    fit(model)
    resized = tflo.resize_classes(model, N + 5)
    assert resized.get_layer("output").embeddings.dtype == "bfloat16"
    np.testing.assert_array_equal(rows_of(resized)[:N], rows_of(model))
    resized.fit(X, Y, BATCH, verbose=0)


@pytest.mark.slow
@pytest.mark.parametrize("ops", slow_but(["core"], ["core", "custom"]))
def test_exports_keep_rows_in_bfloat16(ops, tmp_path):
    model = model_of(layer(use_bias=ops == "core"))
    tflo.serving.export(model, tmp_path / "1", k=3, ops=ops)
    reader = tf.train.load_checkpoint(str(tmp_path / "1" / "variables" / "variables"))
    shapes = reader.get_variable_to_shape_map()
    dtypes = reader.get_variable_to_dtype_map()
    assert [dtypes[one] for one, shape in shapes.items() if shape == [N, DIM]] == [tf.bfloat16]
    served = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    name = next(iter(served.structured_input_signature[1]))
    scores, ids = model.get_layer("output").top_k(X[:4], 3)
    found = served(**{name: tf.constant(X[:4])})
    np.testing.assert_array_equal(found["ids"], ids)
    np.testing.assert_allclose(found["scores"], scores, rtol=1e-5)
    embeddings = model.get_layer("output").embeddings
    embeddings.assign(embeddings * np.nan)
    with pytest.raises(ValueError, match="must be finite. Received: 'embeddings' with NaN"):
        tflo.serving.export(model, tmp_path / "2")


@pytest.mark.parametrize("dtype", ["float16", "int8", "float64", "nonsense", 7])
def test_other_dtypes_are_errors(dtype):
    message = "must be 'bfloat16', or 'float32' or None.*Received.*65,504"
    with pytest.raises(ValueError, match=message):
        layer(embeddings_dtype=dtype)


def test_the_dtype_of_the_policy_is_the_default():
    head = layer(embeddings_dtype=tf.float32)
    head.build((None, DIM))
    assert head.embeddings.dtype == head.get_config()["embeddings_dtype"] == "float32"
    with pytest.raises(ValueError, match="or 'float64' or None"):
        layer(embeddings_dtype="float32", dtype="float64")


@pytest.mark.parametrize(
    "name, num_shards, normalize",
    slow_but(
        [("lsh", 1, False), ("kernel_tree", 1, False)],
        itertools.product(
            [name for name in sampler_table.SHORT if name != "bigram"], [1, 3], [False, True]
        ),
    ),
)
def test_each_sampler_draws_as_from_equal_float32_rows(name, num_shards, normalize):
    drawn = []
    for dtype in ("bfloat16", None):
        sampler = sampler_table.SAMPLERS[name](N, num_sampled=12, seed=3)
        output = layer(
            sampler=sampler,
            embeddings_dtype=dtype,
            embeddings_initializer=in_bfloat16(DIRECTIONS),
            num_shards=num_shards,
            normalize=normalize,
        )
        output.build((None, DIM))
        for _ in range(4):  # late searches start
            sampler.prepare(output)
            draws = sampler.sample(X[:BATCH], Y[:BATCH, np.newaxis], output)
        state = [weight for weight in output.variables if "sampler_" in weight.name]
        drawn.append([np.asarray(one) for one in [*tf.nest.flatten(draws), *state]])
    for one, other in zip(*drawn, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_optimizers_of_keras_are_an_error(optimizer):
    model = compiled(layer(), keras.optimizers.get(optimizer))
    with pytest.raises(ValueError, match="rounds at random.*Use tf_largeout.optimizers"):
        fit(model)


@pytest.mark.slow
def test_rows_on_a_gpu_are_an_error(monkeypatch):
    monkeypatch.setattr(devices, "is_on_gpu", lambda variable: variable.dtype == "bfloat16")
    with pytest.raises(ValueError, match="memory of the CPU.*Build the model in"):
        model_of(layer())


def test_exact_losses_in_bfloat16_are_an_error():
    model = compiled(layer(), loss=tflo.losses.SoftmaxLoss(compute_dtype="bfloat16"))
    with pytest.raises(ValueError, match="supports only compute_dtype='float32'"):
        fit(model)
