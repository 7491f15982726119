"""A save that fails leaves the previous one, if it is done as the guide on saving says."""

import os
import resource

import keras
import numpy as np
import pytest

import tf_largeout as tflo

N, DIM = 500, 16


def _model():
    head = tflo.layers.LargeOutput(N, "uniform", name="output")
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(tflo.optimizers.LazyAdam(0.1), tflo.losses.SampledSoftmaxLoss())
    model.optimizer.build(model.trainable_variables)
    return model


def _rows(model):
    return model.get_layer("output").embeddings.numpy()


@pytest.fixture
def full_disk():
    """No file can become larger than 20 KB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_an_error_and_a_renamed_save_stays_as_it_was(tmp_path, request):
    model = _model()

    def save():
        model.save(tmp_path / "new.keras")
        os.replace(tmp_path / "new.keras", tmp_path / "model.keras")

    save()
    before = _rows(model)
    model.get_layer("output").embeddings.assign_add(np.ones([N, DIM]))
    request.getfixturevalue("full_disk")
    with pytest.raises(OSError, match="File too large"):
        save()
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(_rows(loaded), before)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_run_continues_from_the_backup_before_a_damaged_one(share, tmp_path):
    model = _model()
    backup = keras.callbacks.BackupAndRestore(tmp_path, double_checkpoint=True)
    backup.set_model(model)
    backup.on_epoch_end(0)
    before = _rows(model)
    model.get_layer("output").embeddings.assign_add(np.ones([N, DIM]))
    backup.on_epoch_end(1)
    latest = tmp_path / "latest.weights.h5"
    os.truncate(latest, int(share * latest.stat().st_size))
    other = _model()
    backup = keras.callbacks.BackupAndRestore(tmp_path, double_checkpoint=True)
    backup.set_model(other)
    backup.on_train_begin()
    np.testing.assert_array_equal(_rows(other), before)
    assert other._initial_epoch == 1
