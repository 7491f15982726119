"""Models that XLA compiles (`jit_compile=True`), with the stock operations."""

import importlib
import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.pairs.features import FEATURES, IDS, LABELS, NUM_CLASSES, new_model
from tests.slow import slow_but
from tf_largeout.classes import blockwise
from tf_largeout.ops import library, stock
from tf_largeout.ops.stock import class_scans

PACKAGE = pathlib.Path(tflo.__file__).parent
optimizers, S = tflo.optimizers, tflo.samplers


@pytest.fixture(autouse=True)
def stock_ops(monkeypatch):
    """Replaces the functions of the op library, and makes passes in several blocks."""
    for path in PACKAGE.rglob("*_ops.py"):
        importlib.import_module(
            ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        )
    for name, module in list(sys.modules.items()):
        if name.startswith("tf_largeout.") and hasattr(module, "gen_ops"):
            monkeypatch.setattr(module, "gen_ops", stock)
    monkeypatch.setattr(library, "OPS", "stock")
    for module in (blockwise, class_scans):
        monkeypatch.setattr(module, "_NUMBERS_OF_A_BLOCK", 1)  # the least size of a block


def _bag(table):
    return tflo.layers.LargeOutput(NUM_CLASSES, "uniform")


# Optimizers and arguments of `compile`, with the features that they are tested with.
OTHERS = {
    "LazyAdagrad": (lambda: optimizers.LazyAdagrad(0.1, initial_accumulator_value=0.0), {}),
    "RowwiseAdagrad": (lambda: optimizers.RowwiseAdagrad(0.1), {}),
    "LazySGD": (lambda: optimizers.LazySGD(1.0, momentum=0.9, nesterov=True), {}),
    "momentum": (lambda: optimizers.LazyAdam(0.05, row_beta_1=0.9, weight_decay=0.1), {}),
    "clipnorm": (lambda: optimizers.LazyAdam(0.05, clipnorm=0.1), {}),
    "global_clipnorm": (lambda: optimizers.LazyAdam(0.05, global_clipnorm=0.1), {}),
    "keras.optimizers.Adam": (lambda: keras.optimizers.Adam(0.05), {}),
    "steps_per_execution": (lambda: optimizers.LazyAdam(0.05), {"steps_per_execution": 2}),
}
CASES = [*FEATURES, *OTHERS]


def compiled_model(name, jit_compile):
    """Returns a model of a case, and its labels."""
    feature = name if name in FEATURES else "plain"
    model = new_model(feature)
    # Adam would turn errors of rounding of tiny gradients into large changes.
    optimizer, options = OTHERS.get(name, (lambda: optimizers.LazySGD(0.5), {}))
    metrics = [
        tflo.metrics.PrecisionAtK(1),
        tflo.metrics.RecallAtK(5),
        tflo.metrics.Perplexity(),
    ]
    model.compile(
        optimizer(),
        FEATURES[feature].loss(),
        metrics=metrics,
        jit_compile=jit_compile,
        **options,
    )
    return model, LABELS[FEATURES[feature].labels]


def results(name, jit_compile):
    """Returns losses and metrics of `fit` and `evaluate`, logits and variables."""
    model, labels = compiled_model(name, jit_compile)
    if model.jit_compile != jit_compile:
        return None
    options = {"batch_size": len(labels) // 2, "verbose": 0}
    history = model.fit(IDS, labels, epochs=3, shuffle=False, **options).history
    tested = model.evaluate(IDS, labels, return_dict=True, **options)
    found = {f"fit {name}": values for name, values in history.items()}
    found |= {f"evaluate {name}": value for name, value in tested.items()}
    found["predict"] = model.predict(IDS, **options)
    variables = [*model.variables, *model.optimizer.variables]
    return found | {f"variable {i}": one.numpy() for i, one in enumerate(variables)}


@pytest.mark.parametrize("name", slow_but(["plain"], CASES))
def test_results_are_those_without_xla(name):
    expected, found = results(name, False), results(name, True)
    if found is None:
        pytest.skip("not compiled")
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        if np.issubdtype(np.asarray(values).dtype, np.integer):
            np.testing.assert_array_equal(found[key], values, err_msg=key)
        else:
            np.testing.assert_allclose(
                np.asarray(found[key], "float64"),
                np.asarray(values, "float64"),
                rtol=2e-3,
                atol=1e-5,
                err_msg=key,
            )


def fit(model, x, y, weights=None):
    return model.fit(x, y, sample_weight=weights, batch_size=len(x), verbose=0).history


def state_of(model):
    """Returns all variables but those of metrics, by number."""
    variables = [*model.variables, *model.optimizer.variables]
    return {i: one.numpy() for i, one in enumerate(variables)}


FEATURES_DIM = 4
X = np.random.default_rng(2).normal(size=(8, FEATURES_DIM)).astype("float32")
Y, WEIGHTS = np.arange(8), np.ones(8, "float32")


@tf.custom_gradient
def with_large_gradient(x):
    return x, lambda d: d * tf.where(tf.reduce_max(x) > 50, np.inf, 1.0)


def small_model(optimizer=None, head=None, **options):
    """Returns a compiled model, and a model whose gradients overflow for inputs above 50."""
    keras.utils.set_random_seed(1)
    head = head or tflo.layers.LargeOutput(NUM_CLASSES, S.UniformSampler(20, seed=1))
    hidden = keras.layers.Dense(FEATURES_DIM, kernel_initializer="identity")
    layers = [
        keras.Input([FEATURES_DIM]),
        hidden,
        keras.layers.Lambda(with_large_gradient),
        head,
    ]
    model = keras.Sequential(layers)
    loss = tflo.losses.SampledSoftmaxLoss() if head.sampler else tflo.losses.SoftmaxLoss()
    metrics = [tflo.metrics.PrecisionAtK(1)]
    options = {"jit_compile": True, "metrics": metrics} | options
    model.compile(optimizer or optimizers.LazyAdam(0.05, weight_decay=0.1), loss, **options)
    return model


def spoiled(array, value):
    array = array.copy()
    array.reshape(len(array), -1)[3, 0] = value
    return array


INVALID = {
    "NaN in a feature": (spoiled(X, np.nan), Y, WEIGHTS),
    "infinity in a feature": (spoiled(X, np.inf), Y, WEIGHTS),
    "label above the classes": (X, spoiled(Y, NUM_CLASSES), WEIGHTS),
    "label below -1": (X, spoiled(Y, -2), WEIGHTS),
    "NaN in a weight": (X, Y, spoiled(WEIGHTS, np.nan)),
    "infinity in a weight": (X, Y, spoiled(WEIGHTS, -np.inf)),
}
MODELS = {
    "LazyAdam": small_model,
    "SoftmaxLoss": lambda: small_model(head=tflo.layers.LargeOutput(NUM_CLASSES)),
    "RowwiseAdagrad": lambda: small_model(optimizers.RowwiseAdagrad(0.1, clipnorm=1.0)),
    "LazyAdagrad": lambda: small_model(optimizers.LazyAdagrad(0.1, global_clipnorm=1.0)),
    "LazySGD": lambda: small_model(optimizers.LazySGD(0.1, momentum=0.9)),
    "TopKSampler": lambda: small_model(
        head=tflo.layers.LargeOutput(
            NUM_CLASSES, S.TopKSampler(20, num_hard=5, start_step=3, seed=1)
        )
    ),
}


@pytest.mark.parametrize("name", slow_but(["LazyAdam"], MODELS))
def test_an_invalid_step_has_a_loss_of_nan_and_changes_nothing(name):
    model = MODELS[name]()
    fit(model, X, Y, WEIGHTS)
    before = state_of(model)
    for case, data in INVALID.items():
        logs = fit(model, *data)
        assert np.isnan(logs["loss"]), case
        assert np.isnan(logs["precision_at_1"]) or "weight" in case, case
        tested = model.evaluate(*data[:2], sample_weight=data[2], batch_size=8, verbose=0)
        assert np.isnan(tested[0]), case
        changed = [
            i for i, one in state_of(model).items() if not np.array_equal(one, before[i])
        ]
        assert not changed, case
    for place in (0, 2):  # a weight of the encoder, and a class row
        variable = model.trainable_variables[place]
        good = variable.numpy()
        variable.assign(spoiled(good, np.nan))
        bad = state_of(model)
        assert np.isnan(fit(model, X, Y, WEIGHTS)["loss"])
        for i, one in state_of(model).items():
            np.testing.assert_array_equal(one, bad[i])
        variable.assign(good)
    trained = [*model.trainable_variables, *model.optimizer.variables]
    before = [one.numpy() for one in trained]
    assert np.isfinite(fit(model, X + 100, Y, WEIGHTS)["loss"])  # only the gradients overflow
    for was, now in zip(before, trained, strict=True):
        np.testing.assert_array_equal(now.numpy(), was)
    assert np.isfinite(fit(model, X, Y, WEIGHTS)["loss"])
    assert model.optimizer.iterations == 2
