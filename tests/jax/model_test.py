"""`LargeOutput` in plain Keras models on JAX: fit, evaluate, files, custom loops, devices."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import keras
import numpy as np
import pytest

import tf_largeout as tflo
from tests.slow import slow_but

N, DIM = 300, 8
rng = np.random.default_rng(0)
X = rng.standard_normal((96, DIM)).astype(np.float32)
Y = np.argmax(X @ rng.standard_normal((DIM, N)), axis=1).astype(np.int32)
SEQUENCES = rng.integers(1, 50, (32, 7)).astype(np.int32)
SEQUENCES[:, 5:] = 0
NEXT = np.roll(SEQUENCES, -1, axis=1)
NEXT[:, 4:] = -1


def make_model(seed=1, sampler=None, **options):
    keras.utils.set_random_seed(seed)
    sampler = sampler or tflo.samplers.UniformSampler(32, seed=5)
    head = tflo.layers.LargeOutput(N, sampler, **options)
    return keras.Sequential([keras.Input((DIM,)), keras.layers.Dense(16), head])


def compiled(model, loss=None, optimizer=None, **options):
    loss, optimizer = (
        loss or "sampled_softmax_loss",
        optimizer or tflo.optimizers.LazyAdam(0.02),
    )
    model.compile(optimizer, loss, metrics=["precision_at_1"], **options)
    return model


def fit(model, x=X, y=Y, epochs=2, **options):
    return model.fit(x, y, epochs=epochs, verbose=0, shuffle=False, **options).history["loss"]


OPTIONS = {
    "normalize": {"normalize": True, "scale": "learned", "use_bias": False},
    "cap": {"logit_soft_cap": 5.0},
    "bfloat16": {"embeddings_dtype": "bfloat16"},
    "top_k": {"sampler": tflo.samplers.TopKSampler(32, num_hard=8)},
    "log_uniform": {"sampler": tflo.samplers.LogUniformSampler(32, shared=False)},
}


@pytest.mark.parametrize("name", slow_but(["bfloat16", "normalize", "top_k"], OPTIONS))
def test_models_learn(name):
    options = dict(OPTIONS[name])
    if "sampler" in options:
        config = keras.saving.serialize_keras_object(options["sampler"])
        options["sampler"] = keras.saving.deserialize_keras_object(config)
    model = compiled(make_model(**options))
    history = fit(model, epochs=4)
    assert history[-1] < 0.8 * history[0]
    loss, precision = model.evaluate(X, Y, verbose=0)
    assert 0 < loss < np.log(N) + 1 and precision > 0.02


@pytest.mark.slow
def test_steps_that_are_not_compiled_have_the_same_results():
    expected = fit(compiled(make_model()), X[:64], Y[:64], epochs=1)
    for options in ({"jit_compile": False}, {"steps_per_execution": 2}):
        found = fit(compiled(make_model(), **options), X[:64], Y[:64], epochs=1)
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_a_keras_optimizer_gets_the_dense_gradient():
    """The same step as with the gradient of the formula, for every row."""
    model = compiled(make_model(), tflo.losses.SoftmaxLoss(), keras.optimizers.SGD(1.0))
    plain = keras.models.clone_model(model)
    plain.set_weights(model.get_weights())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    plain.compile(keras.optimizers.SGD(1.0), loss)
    for one in (model, plain):
        one.train_on_batch(X, Y)
    for found, expected in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    sampler = tflo.samplers.TopKSampler(32, num_hard=8, start_step=4, seed=2)
    model = compiled(make_model(sampler=sampler))
    fit(model, epochs=2)
    model.save(tmp_path / "model.keras")
    fit(model, epochs=2)
    again = keras.models.load_model(tmp_path / "model.keras")
    fit(again, epochs=2)
    for found, expected in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)
    pairs = zip(again.optimizer.variables, model.optimizer.variables, strict=True)
    for found, expected in pairs:
        np.testing.assert_array_equal(found.numpy(), expected.numpy(), err_msg=found.path)


@pytest.mark.parametrize("is_tied", slow_but([True], [False, True]))
def test_sequences_with_a_mask(is_tied):
    inputs = keras.Input((7,), dtype="int32")
    embedding = keras.layers.Embedding(50, 16, mask_zero=True)
    hidden = keras.layers.GRU(16, return_sequences=True)(embedding(inputs))
    sampler = tflo.samplers.UniformSampler(16, seed=1)
    tied = embedding if is_tied else None
    head = tflo.layers.LargeOutput(50, sampler, embeddings=tied)
    model = compiled(keras.Model(inputs, head(hidden)))
    history = fit(model, SEQUENCES, NEXT, epochs=6)
    assert history[-1] < history[0]
    features = keras.Model(inputs, hidden).predict(SEQUENCES, verbose=0)
    logits = features @ np.asarray(head.class_embeddings()).T + np.asarray(head.class_biases())
    log_p = jax.nn.log_softmax(logits)
    is_counted = (NEXT >= 0) & (SEQUENCES > 0)
    rows = np.take_along_axis(log_p, np.maximum(NEXT, 0)[..., None], -1)[..., 0]
    loss, _ = model.evaluate(SEQUENCES, NEXT, verbose=0)
    np.testing.assert_allclose(loss, -rows[is_counted].mean(), rtol=1e-4)
    if is_tied:
        assert head.embeddings is embedding.embeddings and len(head.trainable_weights) == 2


def test_a_tied_table_survives_a_file(tmp_path):
    inputs = keras.Input((7,), dtype="int32")
    embedding = keras.layers.Embedding(50, 16)
    head = tflo.layers.LargeOutput(50, "uniform", embeddings=embedding)
    model = compiled(keras.Model(inputs, head(embedding(inputs))))
    fit(model, SEQUENCES, NEXT)
    model.save(tmp_path / "tied.keras")
    again = keras.models.load_model(tmp_path / "tied.keras")
    assert again.layers[-1].embeddings is again.layers[1].embeddings
    expected = model.evaluate(SEQUENCES, NEXT, verbose=0)
    np.testing.assert_allclose(again.evaluate(SEQUENCES, NEXT, verbose=0), expected, rtol=1e-6)
    fit(again, SEQUENCES, NEXT)


def test_excluded_classes_as_an_argument_of_the_layer():
    inputs, seen = keras.Input((DIM,)), keras.Input((2,), dtype="int32")
    head = tflo.layers.LargeOutput(N, "uniform")
    model = compiled(keras.Model([inputs, seen], head(inputs, exclude=seen)))
    best = np.asarray(head.top_k(X, 2)[1])
    labels = best[:, 1]
    nothing = np.full_like(best, -1)
    assert model.evaluate([X, nothing], labels, verbose=0)[1] == 0
    first = np.stack([best[:, 0], nothing[:, 0]], axis=1)
    assert model.evaluate([X, first], labels, verbose=0)[1] == 1


def test_two_outputs():
    inputs = keras.Input((DIM,))
    heads = [tflo.layers.LargeOutput(n, "uniform", name=f"head_{n}") for n in (N, 200)]
    model = keras.Model(inputs, [head(inputs) for head in heads])
    losses = [tflo.losses.SampledSoftmaxLoss(), tflo.losses.NCELoss()]
    model.compile(tflo.optimizers.LazyAdam(0.02), losses, loss_weights=[1.0, 0.1])
    history = model.fit(X, [Y, Y % 200], epochs=3, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]


def test_a_custom_training_loop_equals_fit():
    model, other = compiled(make_model()), make_model()
    fit(model, epochs=1, batch_size=32)
    optimizer, loss = tflo.optimizers.LazyAdam(0.02), tflo.losses.SampledSoftmaxLoss()
    optimizer.build(other.trainable_variables)

    def compute(trainable, rest, x, y):
        logits, rest = other.stateless_call(trainable, rest, x, training=True)
        return loss(y, logits), rest

    @jax.jit
    def step(state, x, y):
        trainable, rest, slots = state
        (_, rest), gradients = jax.value_and_grad(compute, has_aux=True)(trainable, rest, x, y)
        trainable, slots = optimizer.stateless_apply(slots, gradients, trainable)
        return trainable, rest, slots

    groups = other.trainable_variables, other.non_trainable_variables, optimizer.variables
    state = [[one.value for one in group] for group in groups]
    for first in range(0, len(X), 32):
        state = step(state, X[first : first + 32], Y[first : first + 32])
    for found, expected in zip(state[0], model.trainable_variables, strict=True):
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6)
    other = make_model(sampler=tflo.samplers.TopKSampler(32, num_hard=8, start_step=1))
    groups = other.trainable_variables, other.non_trainable_variables
    with pytest.raises(ValueError, match="start_step=0"):
        jax.jit(compute)(*[[one.value for one in group] for group in groups], X, Y)


def test_mixed_precision():
    for policy, works in (("mixed_bfloat16", True), ("mixed_float16", False)):
        keras.config.set_dtype_policy(policy)
        try:
            if works:
                history = fit(compiled(make_model()), epochs=3)
                assert history[-1] < history[0]
            else:
                with pytest.raises(ValueError, match="mixed_bfloat16"):
                    make_model()
        finally:
            keras.config.set_dtype_policy("float32")


def test_labels_out_of_range():
    bad = np.where(np.arange(len(Y)) == 3, N, Y)
    wrong = {f"Received: \\[{N}\\]": bad, "dtype float": Y.astype("float32")}
    for message, labels in wrong.items():
        model = compiled(make_model())
        with pytest.raises(ValueError, match=message):
            fit(model, y=labels)
        assert np.isfinite(model.predict(X, verbose=0)).all()  # it has kept its weights
    with pytest.raises(ValueError, match="class_weight"):
        fit(compiled(make_model()), y=np.stack([Y, Y], 1), class_weight={0: 2.0})
    model = compiled(make_model())
    fit(model)
    expected = model.predict(X, verbose=0)
    for labels, message in [
        (bad, "class ids"),
        (X, "dtype float"),
        (Y[:, None, None], "shape"),
    ]:
        for method in (model.evaluate, model.fit):
            with pytest.raises(ValueError, match=message):
                method(X[:90], labels[:90], batch_size=90, verbose=0)
            np.testing.assert_array_equal(model.predict(X, verbose=0), expected)
    model.train_on_batch(X, Y)
    before = [one.numpy() for one in (*model.trainable_variables, *model.optimizer.variables)]
    assert np.isnan(model.train_on_batch(X, bad)[0])  # it is compiled, and cannot raise errors
    after = [one.numpy() for one in (*model.trainable_variables, *model.optimizer.variables)]
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(new, old)


def test_wrong_calls():
    layer = tflo.layers.LargeOutput(N, "uniform")
    layer(X)
    for exclude in (np.zeros((len(X), 2)), np.zeros((1, 2), int)):
        with pytest.raises(ValueError, match="`exclude` must have a row"):
            layer(X, exclude=exclude)
    with pytest.raises(ValueError, match="TensorFlow backend"):
        layer.top_k(X, 3, scores="softmax")
    with pytest.raises(ValueError, match="use_ema"):
        fit(compiled(make_model(), optimizer=tflo.optimizers.LazyAdam(use_ema=True)))
    with pytest.raises(ValueError, match="equal lengths"):
        tflo.retrieval.predict_top_k(make_model(), [X, X[:1]], 3)
    with pytest.raises(ValueError, match="at least one batch"):
        tflo.retrieval.predict_top_k(make_model(), iter([]), 3, verbose=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 0}, "num_classes"),
        ({"num_shards": 2}, "ModelParallel"),
        ({"ranking": "absolute"}, "ranking"),
        ({"scale": -1.0}, "scale"),
        ({"embeddings_dtype": "float16"}, "embeddings_dtype"),
        ({"sampler": "lsh"}, "TopKSampler"),
        ({"embeddings": "table"}, "keras.layers.Embedding"),
        ({"embeddings": keras.layers.Embedding(3, 4)}, "rows"),
        (
            {"embeddings": keras.layers.ReversibleEmbedding(10, 4, logit_soft_cap=2.0)},
            "logit_soft_cap",
        ),
        ({"embeddings_initializer": [[np.nan]]}, "finite"),
        ({"activation": "softmax"}, "logits"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        tflo.layers.LargeOutput(**{"num_classes": 10} | options)


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("data", marks=pytest.mark.slow),
        pytest.param("model", marks=pytest.mark.slow),
        "both",
    ],
)
def test_several_devices_have_the_results_of_one(mode, one_device):
    expected = one_device
    found = run_on_devices(mode)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=1e-6, err_msg=name)


@pytest.fixture(scope="module")
def one_device():
    return run_on_devices("one")


def run_on_devices(mode):
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4"
    root = pathlib.Path(__file__).parents[2]
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": str(root)}
    program = [sys.executable, __file__, mode]
    output = subprocess.run(
        program, env=environment, check=True, capture_output=True, text=True
    ).stdout
    return json.loads(output.splitlines()[-1])


def train_on_devices(mode):
    """Trains with a `keras.distribution`, and prints results as JSON."""
    devices, distribution = keras.distribution.list_devices(), None
    if mode == "data":
        distribution = keras.distribution.DataParallel(devices=devices)
    elif mode != "one":
        shape = (1, 4) if mode == "model" else (2, 2)
        mesh = keras.distribution.DeviceMesh(shape, ("batch", "model"), devices)
        layouts = keras.distribution.LayoutMap(mesh)
        layouts[".*large_output.*/embeddings"] = ("model", None)
        layouts[".*large_output.*/bias"] = ("model",)
        options = {"layout_map": layouts, "batch_dim_name": "batch"}
        distribution = keras.distribution.ModelParallel(**options)
    keras.distribution.set_distribution(distribution)
    model = compiled(make_model())
    losses = fit(model)
    if mode not in ("one", "data"):
        assert "model" in str(model.layers[-1].embeddings.value.sharding.spec)
    scores, _ = tflo.retrieval.predict_top_k(model, X, 3, verbose=0)
    results = {"losses": losses, "evaluated": model.evaluate(X, Y, verbose=0)}
    compiled(model, tflo.losses.SoftmaxLoss())
    results["exact"] = fit(model)
    print(json.dumps(results | {"scores": np.asarray(scores).tolist()}))


if __name__ == "__main__":
    train_on_devices(sys.argv[1])
