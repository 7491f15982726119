"""`Backup` in one process: an interrupted run equals an uninterrupted one."""

import keras
import numpy as np
import pytest

import tf_largeout as tflo
from tests.harness import multi_optimizer
from tests.slow import slow_but

N, DIM, BATCH, EPOCHS = 50, 6, 8, 4
RNG = np.random.default_rng(5)
X = RNG.normal(size=(4 * BATCH, DIM)).astype("float32")
Y = RNG.integers(0, N, len(X))


def new_model(num_shards, dim=DIM, seed=1, eagerly=False, optimizer=None):
    keras.utils.set_random_seed(seed)
    sampler = tflo.samplers.UniformSampler(9, seed=3)
    head = tflo.layers.LargeOutput(N, sampler, num_shards=num_shards)
    layers = [keras.Input([DIM]), keras.layers.Dense(dim), keras.layers.Dropout(0.3, seed=4)]
    model = keras.Sequential([*layers, head])
    model.compile(
        optimizer or tflo.optimizers.LazyAdam(0.05),
        tflo.losses.SampledSoftmaxLoss(),
        run_eagerly=eagerly,  # for tests that are not about training
    )
    return model


def train(model, folder, epochs, **options):
    backup = tflo.distribute.Backup(model, folder, **options)
    first = backup.restore()
    model.fit(
        X,
        Y,
        BATCH,
        epochs=epochs,
        initial_epoch=first,
        callbacks=[backup],
        shuffle=False,
        verbose=0,
    )
    return first


def assert_equal(one, other):
    np.testing.assert_array_equal(
        one.layers[-1].class_embeddings(), other.layers[-1].class_embeddings()
    )
    for a, b in zip(one.layers[0].weights, other.layers[0].weights, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("before, after", slow_but([(2, 3)], [(1, 1), (2, 2), (2, 3), (3, 1)]))
def test_a_resumed_run_is_bit_identical_in_any_number_of_shards(tmp_path, before, after):
    whole = new_model(1)
    assert train(whole, tmp_path / "whole", EPOCHS) == 0
    assert train(new_model(before), tmp_path / "cut", 2) == 0
    again = new_model(after, seed=7)  # other weights, which the backup replaces
    assert train(again, tmp_path / "cut", EPOCHS) == 2
    assert_equal(again, whole)


@pytest.mark.slow
@pytest.mark.parametrize("scaled", [False, True])
def test_a_resumed_run_with_several_optimizers_is_bit_identical(tmp_path, scaled):
    def make(seed=1):
        rows = {".*large_output.*": tflo.optimizers.LazySGD(1.0, momentum=0.9)}
        optimizer = multi_optimizer(tflo.optimizers.LazyAdam(0.05), rows)
        if scaled:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, 2.0**9)
        return new_model(2, seed=seed, optimizer=optimizer, eagerly=True)

    whole, again = make(), make(seed=7)
    train(whole, tmp_path / "whole", 3)
    train(make(), tmp_path / "cut", 1)
    assert train(again, tmp_path / "cut", 3) == 1
    assert_equal(again, whole)


@pytest.mark.slow
def test_backups_follow_save_freq_and_only_the_last_is_kept(tmp_path):
    train(new_model(2, eagerly=True), tmp_path, 3, save_freq=2)
    assert train(new_model(2, eagerly=True), tmp_path, 3, save_freq=2) == 2
    assert len(list(tmp_path.glob("*.index"))) == 1


def test_files_of_an_unfinished_backup_are_deleted(tmp_path):
    train(new_model(2, eagerly=True), tmp_path, 1)
    rest = tmp_path / "ckpt-2_temp"
    rest.mkdir()
    (rest / "part-00000-of-00003.data-00000-of-00001").write_bytes(b"half")
    assert tflo.distribute.Backup(new_model(2), tmp_path).restore() == 1
    assert not rest.exists()


def test_a_backup_of_another_model_raises_an_error(tmp_path):
    train(new_model(2, eagerly=True), tmp_path, 1)
    with pytest.raises(ValueError, match="Received: a backup of another model"):
        tflo.distribute.Backup(new_model(2, dim=DIM + 1), tmp_path).restore()


@pytest.mark.parametrize("save_freq", [0, -1, 1.5, "epoch"])
def test_an_invalid_save_freq_raises_an_error(tmp_path, save_freq):
    with pytest.raises(ValueError, match="Received: save_freq="):
        tflo.distribute.Backup(new_model(2), tmp_path, save_freq=save_freq)


def test_an_unbuilt_model_raises_an_error(tmp_path):
    unbuilt = keras.Sequential([tflo.layers.LargeOutput(N)])
    with pytest.raises(ValueError, match="must be built and compiled before `Backup`"):
        tflo.distribute.Backup(unbuilt, tmp_path)
