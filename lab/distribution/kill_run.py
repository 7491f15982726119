"""The trainer that `kills` kills. It continues from the last backup and reports its progress.

python -m lab.distribution.kill_run FOLDER CLASSES EPOCHS ADDRESS ...
"""

import hashlib
import sys

import keras
import numpy as np

import tf_largeout as tflo
from benchmarks.harness import machine

DIM, BATCH, STEPS = 64, 64, 30


def say(*words):
    """Prints a line for the process that started this one."""
    print(*words, flush=True)


class Backup(tflo.distribute.Backup):
    """A `Backup` that reports its begin and end."""

    def on_epoch_end(self, epoch, logs=None):
        """Saves a backup."""
        say("saving", epoch)
        super().on_epoch_end(epoch, logs)
        say("saved", epoch)


def new_model(num_classes, num_shards):
    """Returns a model whose layers have state: dropout, a sampler, an optimizer."""
    keras.utils.set_random_seed(1)
    sampler = tflo.samplers.UniformSampler(256, seed=2)
    head = tflo.layers.LargeOutput(num_classes, sampler, num_shards=num_shards)
    trunk = [keras.Input([DIM]), keras.layers.Dense(DIM), keras.layers.Dropout(0.1)]
    model = keras.Sequential([*trunk, head])
    model.compile(tflo.optimizers.LazyAdam(1e-2), tflo.losses.SampledSoftmaxLoss())
    return model


def train(folder, num_classes, epochs, *addresses):
    """Trains and prints the digest of all trained state."""
    machine.use("cpu")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(STEPS * BATCH, DIM)).astype("float32")
    y = rng.integers(0, int(num_classes), len(x))
    tflo.distribute.connect(addresses, timeout_s=60)
    say("connected")
    model = new_model(int(num_classes), len(addresses))
    backup = Backup(model, folder)
    first = backup.restore()
    say("from", first)
    steps = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: say("epoch", epoch),
        on_train_batch_end=lambda batch, logs: say("step", batch),
    )
    model.fit(
        x,
        y,
        BATCH,
        epochs=int(epochs),
        initial_epoch=first,
        callbacks=[steps, backup],
        shuffle=False,
        verbose=0,
    )
    digest = hashlib.sha256()
    metrics = set(map(id, model.metrics_variables))
    for variable in [*model.variables, *model.optimizer.variables]:
        if id(variable) not in metrics:
            digest.update(variable.numpy().tobytes())
    say("digest", digest.hexdigest())


if __name__ == "__main__":
    train(*sys.argv[1:])
