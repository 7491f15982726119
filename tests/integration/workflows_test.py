"""What users do with a model besides training: one function per workflow."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.integration.samplers import NUM_CLASSES, SAMPLERS

EXAMPLES, BATCH, EPOCHS = 64, 8, 4
RNG = np.random.default_rng(2)
X = RNG.normal(size=(EXAMPLES, 5)).astype("float32")
Y = RNG.integers(0, NUM_CLASSES, EXAMPLES)


def new_model(sampler):
    keras.utils.set_random_seed(4)
    model = keras.Sequential(
        [
            keras.Input([5]),
            keras.layers.Dense(8, activation="tanh"),
            tflo.layers.LargeOutput(NUM_CLASSES, SAMPLERS[sampler]()),
        ]
    )
    model.compile(tflo.optimizers.LazyAdam(0.01), tflo.losses.SampledSoftmaxLoss())
    model.optimizer.build(model.trainable_variables)  # avoids a second trace
    return model


def train(model, epochs=EPOCHS, **kwargs):
    options = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    return model.fit(X, Y, epochs=epochs, **options, **kwargs).history


def assert_same_predictions(one, other):
    np.testing.assert_array_equal(one.predict(X, verbose=0), other.predict(X, verbose=0))


def export(sampler, folder):
    model = new_model(sampler)
    train(model)
    model.export(folder / "model", verbose=False)
    loaded = tf.saved_model.load(folder / "model")
    np.testing.assert_allclose(
        loaded.serve(X), model.predict(X, verbose=0), rtol=1e-5, atol=1e-6
    )


def clone_model(sampler, folder):
    model = new_model(sampler)
    train(model)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    assert_same_predictions(clone, model)
    clone.compile(tflo.optimizers.LazyAdam(0.01), tflo.losses.SampledSoftmaxLoss())
    losses = train(clone)["loss"]
    assert losses[-1] < losses[0]


def early_stopping(sampler, folder):
    model, best = new_model(sampler), []
    stopping = keras.callbacks.EarlyStopping(
        "val_loss", mode="max", patience=1, restore_best_weights=True
    )
    after_first = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: best.append(model.get_weights())
    )
    history = train(model, epochs=9, validation_data=(X, Y), callbacks=[after_first, stopping])
    assert len(history["loss"]) == 2  # the loss falls, so the first epoch has the maximum
    for restored, expected in zip(model.get_weights(), best[0], strict=True):
        np.testing.assert_array_equal(restored, expected)


def model_checkpoint(sampler, folder):
    model = new_model(sampler)
    path = str(folder / "best.keras")
    checkpoint = keras.callbacks.ModelCheckpoint(path, "val_loss", save_best_only=True)
    train(model, validation_data=(X, Y), callbacks=[checkpoint])
    assert_same_predictions(keras.models.load_model(path), model)


def backup_and_restore(sampler, folder):
    whole = new_model(sampler)
    train(whole)
    for epochs in (2, EPOCHS):  # the first run is killed after two epochs
        resumed = new_model(sampler)
        backup = keras.callbacks.BackupAndRestore(
            str(folder / "backup"), delete_checkpoint=False
        )
        train(resumed, epochs, callbacks=[backup])
    assert int(resumed.optimizer.iterations) == int(whole.optimizer.iterations)
    for one, other in zip(whole.weights, resumed.weights, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=one.path)


WORKFLOWS = [export, clone_model, early_stopping, model_checkpoint, backup_and_restore]


# One sampler for each kind of state: count tables, lists, none, hash tables, a tree.
CASES = list(
    itertools.product(WORKFLOWS, ["unigram", "inverted_file", "uniform", "lsh", "kernel_tree"])
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "workflow, sampler", CASES, ids=lambda one: getattr(one, "__name__", one)
)
def test_a_workflow_succeeds(workflow, sampler, tmp_path):
    workflow(sampler, tmp_path)
