"""A training step with invalid input raises an error and changes nothing."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.slow import slow_but

NUM_CLASSES = 50

BAD_INPUT = {
    "id above the classes": (
        lambda x, y, w: (x, np.where(y == y[3], NUM_CLASSES, y), w),
        "class ids",
    ),
    "id below -1": (lambda x, y, w: (x, np.where(y == y[3], -2, y), w), "class ids"),
    "NaN features": (lambda x, y, w: (x * np.nan, y, w), "features.*must be finite"),
    "infinite features": (lambda x, y, w: (x * np.inf, y, w), "features.*must be finite"),
    "NaN weights": (lambda x, y, w: (x, y, w * np.nan), "`sample_weight`.*must be finite"),
    "one infinite weight": (
        lambda x, y, w: (x, y, np.where(np.arange(8) == 3, np.inf, w)),
        "`sample_weight`.*must be finite",
    ),
}


def _model(optimizer=None, **compile_arguments):
    head = tflo.layers.LargeOutput(NUM_CLASSES, tflo.samplers.UniformSampler(10, seed=2))
    model = keras.Sequential([keras.layers.Dense(4), head])
    loss = tflo.losses.SampledSoftmaxLoss()
    model.compile(optimizer or tflo.optimizers.LazyAdam(0.1), loss, **compile_arguments)
    return model


def _data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(8, 3)).astype("float32"), rng.integers(0, NUM_CLASSES, 8)


def _state(model):
    return [v.numpy() for v in model.trainable_variables + model.optimizer.variables]


@pytest.mark.parametrize("eager", [False, True], ids=["graph", "eager"])
def test_invalid_input_raises_an_error_and_changes_no_variable(eager):
    model = _model(run_eagerly=eager)
    x, y, weight = *_data(), np.ones(8, "float32")
    model.build(x.shape)
    model.optimizer.build(model.trainable_variables)  # avoids a second trace
    model.train_on_batch(x, y, weight)
    before = _state(model)
    for name, (spoil, message) in BAD_INPUT.items():
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            model.train_on_batch(*spoil(x, y, weight))
        for was, now in zip(before, _state(model), strict=True):
            np.testing.assert_array_equal(now, was, err_msg=name)
    model.train_on_batch(x, y, weight)


@pytest.mark.parametrize(
    "name", slow_but(["SampledSoftmaxLoss"], ["SampledSoftmaxLoss", "NCELoss", "SoftmaxLoss"])
)
def test_an_overflow_only_lowers_the_loss_scale(name):
    loss = getattr(tflo.losses, name)()
    model = keras.Sequential(
        [
            keras.layers.Embedding(30, 4, dtype="mixed_float16"),
            keras.layers.GlobalAveragePooling1D(dtype="mixed_float16"),
            tflo.layers.LargeOutput(
                NUM_CLASSES, tflo.samplers.UniformSampler(10), dtype="mixed_float16"
            ),
        ]
    )
    optimizer = keras.optimizers.LossScaleOptimizer(
        tflo.optimizers.LazyAdam(0.1), initial_scale=2.0**40
    )
    model.compile(optimizer, loss)
    words, labels = np.arange(24).reshape(8, 3), np.arange(8)
    model.build((None, 3))
    before = [variable.numpy() for variable in model.trainable_variables]
    model.train_on_batch(words, labels)
    assert optimizer.dynamic_scale == 2.0**39
    for was, now in zip(before, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(now, was)


@pytest.mark.slow
def test_an_empty_batch_changes_no_weights():
    model = _model(tflo.optimizers.LazySGD(0.1))
    x, y = _data()
    model.build(x.shape)
    model.optimizer.build(model.trainable_variables)
    before = [variable.numpy() for variable in model.trainable_variables]
    tf.function(model.train_step)((tf.constant(x[:0]), tf.constant(y[:0])))
    for was, now in zip(before, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(now.numpy(), was)
