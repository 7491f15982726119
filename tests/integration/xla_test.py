"""Models that XLA compiles (`jit_compile=True`), with the stock operations."""

import importlib
import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.pairs.features import DIM, FEATURES, IDS, LABELS, NUM_CLASSES, Feature, new_model
from tests.slow import slow_but
from tf_largeout.classes import blockwise
from tf_largeout.ops import library, stock
from tf_largeout.ops.stock import class_scans

PACKAGE = pathlib.Path(tflo.__file__).parent
O, S = tflo.optimizers, tflo.samplers


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
    "LazyAdagrad": (lambda: O.LazyAdagrad(0.1, initial_accumulator_value=0.0), {}),
    "RowwiseAdagrad": (lambda: O.RowwiseAdagrad(0.1), {}),
    "LazySGD": (lambda: O.LazySGD(1.0, momentum=0.9, nesterov=True), {}),
    "momentum": (lambda: O.LazyAdam(0.05, row_beta_1=0.9, weight_decay=0.1), {}),
    "clipnorm": (lambda: O.LazyAdam(0.05, clipnorm=0.1), {}),
    "global_clipnorm": (lambda: O.LazyAdam(0.05, global_clipnorm=0.1), {}),
    "keras.optimizers.Adam": (lambda: keras.optimizers.Adam(0.05), {}),
    "steps_per_execution": (lambda: O.LazyAdam(0.05), {"steps_per_execution": 2}),
}
CASES = [*FEATURES, *OTHERS]


def compiled_model(name, jit_compile):
    """Returns a model of a case, and its labels."""
    feature = name if name in FEATURES else "plain"
    model = new_model(feature)
    optimizer, options = OTHERS.get(name, (lambda: O.LazyAdam(0.05), {}))
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
