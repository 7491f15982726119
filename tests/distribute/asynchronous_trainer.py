"""Trains with two trainers on the servers of the command line; prints the results.

python -m tests.distribute.asynchronous_trainer FOLDER PID SERVER TRAINER TRAINER

Kills the process PID after the first epoch; 0 kills none.
"""

import json
import os
import signal
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import keras
import numpy as np
import tensorflow as tf

import tf_largeout as tflo

N, DIM, BATCH, STEPS = 100, 16, 32, 60
RNG = np.random.default_rng(3)
WORDS = RNG.normal(size=(N, DIM)).astype("float32")


def new_model():
    keras.utils.set_random_seed(2)
    head = tflo.layers.LargeOutput(N, tflo.samplers.UniformSampler(20, seed=1), num_shards=2)
    model = keras.Sequential([keras.Input([DIM]), keras.layers.Dense(DIM), head])
    model.compile(
        tflo.optimizers.LazyAdam(0.02),
        tflo.losses.SampledSoftmaxLoss(),
        metrics=[tflo.metrics.PrecisionAtK(1), "sparse_top_k_categorical_accuracy"],
        steps_per_execution=7,
    )
    return model


def dataset_fn(seed):
    data = tf.data.Dataset.range(N).shuffle(N, seed=seed).repeat().batch(BATCH)
    return data.map(lambda ids: (tf.gather(WORDS, ids), ids))


def ending_fn(seed):
    return dataset_fn(seed).take(3)


class Fault(keras.callbacks.Callback):
    """Kills a process during the second epoch."""

    def __init__(self, pid):
        super().__init__()
        self.pid = pid

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1 and self.pid:
            os.kill(self.pid, signal.SIGKILL)


def error_of(function):
    try:
        function()
    except ValueError as error:
        return str(error)
    return None


def examples_of_an_epoch(model):
    """Returns the number of examples that the metrics counted in one epoch."""
    tflo.distribute.fit(model, dataset_fn, STEPS, verbose=0)
    return float(max(variable.numpy() for variable in model.metrics_variables))


def main(folder, pid, server, *trainers):
    tflo.distribute.connect([server], trainers=trainers)
    model = new_model()
    callbacks = [Fault(int(pid)), tflo.distribute.Backup(model, folder)]
    history = tflo.distribute.fit(
        model,
        dataset_fn,
        STEPS,
        epochs=3,
        verbose=0,
        callbacks=callbacks,
        validation_data=(WORDS, np.arange(N)),
    ).history
    before = model.layers[-1].class_embeddings().numpy()
    again = new_model()
    done = tflo.distribute.Backup(again, folder).restore()
    same = np.array_equal(again.layers[-1].class_embeddings(), before)
    found = {
        "history": history,
        "iterations": int(model.optimizer.iterations),
        "places": sorted({one.value.device for one in model.layers[-1].trainable_weights}),
        "restored": [done, int(again.optimizer.iterations), bool(same)],
        "counted": examples_of_an_epoch(model),
        "ended": error_of(lambda: tflo.distribute.fit(model, ending_fn, STEPS, verbose=0)),
    }
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
