"""Trains on the servers of the command line and in this process; compares the results.

python -m tests.distribute.trainer FOLDER ADDRESS ...
"""

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import keras
import numpy as np
import tensorflow as tf

import tf_largeout as tflo

N, DIM, BATCH = 101, 8, 16
RNG = np.random.default_rng(3)
X = RNG.normal(size=(8 * BATCH, DIM)).astype("float32")
Y = RNG.integers(0, N, 8 * BATCH)


def new_model(num_shards):
    keras.utils.set_random_seed(2)
    sampler = tflo.samplers.UniformSampler(10, seed=1)
    head = tflo.layers.LargeOutput(N, sampler, num_shards=num_shards)
    model = keras.Sequential([keras.Input([DIM]), keras.layers.Dense(DIM), head])
    model.compile(
        tflo.optimizers.LazyAdam(0.05),
        tflo.losses.SampledSoftmaxLoss(),
        metrics=[tflo.metrics.PrecisionAtK(1)],
        steps_per_execution=2,
    )
    return model


def train(num_shards, folder):
    model = new_model(num_shards)
    saves = keras.callbacks.ModelCheckpoint(f"{folder}/{num_shards}-{{epoch}}.keras")
    history = model.fit(
        X,
        Y,
        BATCH,
        epochs=3,
        shuffle=False,
        verbose=0,
        validation_data=(X, Y),
        callbacks=[saves],
    ).history
    return model, history


def answers(model):
    dense, head = model.layers
    return [
        *dense.get_weights(),
        head.class_embeddings(),
        *head.top_k(dense(X), 7, exclude=Y[:, np.newaxis]),
        *tflo.retrieval.predict_top_k(model, X, 3, verbose=0),
    ]


def are_equal(one, other):
    return all(np.array_equal(a, b) for a, b in zip(answers(one), answers(other), strict=True))


def failing_step(model):
    """Returns whether a step with an id out of range is an error that changes nothing."""
    before = [variable.numpy() for variable in model.optimizer.variables]
    try:
        model.train_on_batch(X[:2], np.array([1, N]))
    except tf.errors.InvalidArgumentError as error:
        after = [variable.numpy() for variable in model.optimizer.variables]
        same = all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
        return same and str(N) in error.message
    return False


def main(folder, *addresses):
    tflo.distribute.connect(addresses)
    tflo.distribute.connect(addresses)  # a second call is allowed
    model, history = train(3, folder)
    one, expected = train(1, folder)
    found = {
        "training": history["loss"] == expected["loss"],
        "metrics": history["val_precision_at_1"] == expected["val_precision_at_1"],
        "evaluation": np.allclose(history["val_loss"], expected["val_loss"], rtol=1e-6),
        "answers": are_equal(model, one),
        "predictions": np.allclose(model.predict(X, verbose=0), one(X), rtol=1e-5, atol=1e-5),
    }
    loaded = keras.models.load_model(f"{folder}/3-2.keras")
    loaded.fit(X, Y, BATCH, shuffle=False, verbose=0)
    found["file"] = are_equal(loaded, one)
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(f"{folder}/check")
    again = new_model(2)
    tf.train.Checkpoint(model=again, optimizer=again.optimizer).read(path)
    for each in (again, one):  # the first step creates the slots, which restores them
        each.fit(X, Y, BATCH, shuffle=False, verbose=0)
    found["checkpoint"] = are_equal(again, one)
    found["failing step"] = failing_step(model)
    try:
        keras.Sequential([tflo.layers.LargeOutput(N, num_shards=2)]).predict(X, verbose=0)
        found["built in fit"] = False
    except ValueError as error:
        found["built in fit"] = "keras.Input" in str(error)
    variables = [*model.layers[-1].trainable_weights, *model.optimizer.variables]
    shards = [part for one in variables for part in getattr(one, "shards", [one])]
    devices = {v.path: v.value.device for v in shards if "large_output" in v.path}
    print(json.dumps({**found, "devices": devices}))


if __name__ == "__main__":
    main(*sys.argv[1:])
