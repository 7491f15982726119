"""Files of models with Keras's `MultiOptimizer`, as the guides describe them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.harness import multi_optimizer
from tests.slow import slow_but
from tf_largeout import layers, losses, optimizers

N, DIM = 30, 6
RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(16, DIM)).astype("float32"), RNG.integers(0, N, 16)


def new_model(num_shards, seed):
    keras.utils.set_random_seed(seed)
    head = layers.LargeOutput(N, num_shards=num_shards)
    model = keras.Sequential([keras.Input([DIM]), keras.layers.Dense(DIM), head])
    rows = {".*large_output.*": optimizers.LazySGD(1.0, momentum=0.9)}
    optimizer = multi_optimizer(optimizers.LazyAdam(0.05), rows)
    model.compile(optimizer, losses.SoftmaxLoss(), run_eagerly=True)
    model.optimizer.build(model.trainable_variables)
    return model


def by_checkpoint(model, restored, path):
    checkpoints = [
        tf.train.Checkpoint(model=one, optimizers=list(one.optimizer.optimizers))
        for one in (model, restored)
    ]
    checkpoints[1].restore(checkpoints[0].save(path)).assert_consumed()
    return restored


def by_model_file(model, _, path):
    model.save(f"{path}.keras")
    return keras.models.load_model(f"{path}.keras")


def by_weights_file(model, restored, path):
    model.save_weights(f"{path}.weights.h5")
    restored.load_weights(f"{path}.weights.h5")
    return restored


def by_backup_and_restore(model, restored, path):
    for one in (model, restored):  # the second restores the state of the first
        backup = keras.callbacks.BackupAndRestore(path, delete_checkpoint=False)
        one.fit(X, Y, 8, shuffle=False, callbacks=[backup], verbose=0)
    return restored


@pytest.mark.slow
@pytest.mark.parametrize(
    "num_shards, by",
    slow_but(
        [(1, by_model_file)],
        [
            (num_shards, by)
            for num_shards in (1, 2)
            for by in (by_checkpoint, by_model_file, by_weights_file, by_backup_and_restore)
        ],
    ),
)
def test_a_resumed_run_is_bit_identical(num_shards, by, tmp_path):
    whole = new_model(num_shards, seed=1)
    whole.fit(X, Y, 8, shuffle=False, verbose=0)
    resumed = by(whole, new_model(num_shards, seed=2), str(tmp_path / "state"))
    resumed.run_eagerly = True
    for model in (whole, resumed):
        model.fit(X, Y, 8, initial_epoch=1, epochs=2, shuffle=False, verbose=0)
    for one, other in zip(whole.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
