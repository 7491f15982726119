"""A save that fails leaves the previous one, if it is done as the guide on saving says."""

import os
import resource
import subprocess
import sys
import time
import zipfile

import keras
import numpy as np
import pytest

import tf_largeout as tflo

N, DIM = 500, 16


def _model(num_classes=N):
    head = tflo.layers.LargeOutput(num_classes, "uniform", name="output")
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


def _save_by_hand(model, path):
    model.save(path.with_name("new.keras"))
    os.replace(path.with_name("new.keras"), path)


def _save_by_callback(model, path, weights_only=False, of_keras=False):
    library = keras if of_keras else tflo
    checkpoint = library.callbacks.ModelCheckpoint(path, save_weights_only=weights_only)
    checkpoint.set_model(model)
    checkpoint.on_epoch_end(0, {})


@pytest.mark.parametrize("save_to", [_save_by_hand, _save_by_callback])
def test_a_full_disk_is_an_error_and_a_renamed_save_stays_as_it_was(save_to, tmp_path, request):
    model = _model()

    def save():
        save_to(model, tmp_path / "model.keras")

    save()
    before = _rows(model)
    model.get_layer("output").embeddings.assign_add(np.ones([N, DIM]))
    request.getfixturevalue("full_disk")
    with pytest.raises(OSError, match="File too large"):
        save()
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(_rows(loaded), before)
    if save_to is _save_by_callback:
        assert os.listdir(tmp_path) == ["model.keras"]


def test_the_checkpoint_callback_saves_in_fit_what_that_of_keras_saves(tmp_path):
    model, seen = _model(), []
    callbacks = [
        tflo.callbacks.ModelCheckpoint(
            tmp_path / "best.weights.h5", "loss", save_best_only=True, save_weights_only=True
        ),
        tflo.callbacks.ModelCheckpoint(tmp_path / "new" / "{epoch}.keras"),
        keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: seen.append(_rows(model))),
    ]
    x, y = np.ones([8, DIM], "float32"), np.arange(8)
    losses = model.fit(x, y, epochs=2, callbacks=callbacks, verbose=0).history["loss"]
    loaded = keras.models.load_model(tmp_path / "new" / "1.keras")
    np.testing.assert_array_equal(_rows(loaded), seen[0])
    loaded.load_weights(tmp_path / "best.weights.h5")
    np.testing.assert_array_equal(_rows(loaded), seen[np.argmin(losses)])
    assert sorted(os.listdir(tmp_path)) == ["best.weights.h5", "new"]
    assert sorted(os.listdir(tmp_path / "new")) == ["1.keras", "2.keras"]


_CHILD = """
import pathlib, resource, sys
import numpy as np
from tests.integration import failed_save_test as saves

path, how, fault = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
model, number = saves._model(20_000), 0
while True:
    number += 1
    rows = model.get_layer("output").embeddings
    rows.assign(np.full(rows.shape, number))
    saves._save_by_callback(model, path, path.suffix == ".h5", how == "keras")
    print(number, flush=True)
    if fault == "full disk":
        limit = path.stat().st_size // 2
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
"""


def _number_in(path):
    """Returns the number that all rows in a file have."""
    model = _model(20_000)
    model.load_weights(path)
    (number,) = np.unique(_rows(model))
    return number


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.keras", "model.weights.h5"])
@pytest.mark.parametrize("fault", ["killed", "full disk"])
def test_a_checkpoint_callback_keeps_the_previous_save(name, fault, tmp_path):
    path = tmp_path / name
    for attempt in range(3 if fault == "killed" else 1):
        command = [sys.executable, "-c", _CHILD, str(path), "ours", fault]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            saved = [child.stdout.readline() for _ in range(2 if fault == "killed" else 1)]
            if fault == "killed":
                time.sleep(0.03 * (attempt + 1))
                child.kill()
            saved += child.stdout.readlines()
        assert child.returncode != 0
        # It may have been killed between the renaming and the print.
        assert _number_in(path) - int(saved[-1]) in ([0, 1] if fault == "killed" else [0])


@pytest.mark.slow
def test_the_callback_of_keras_loses_the_previous_save_on_a_full_disk(tmp_path):
    path = tmp_path / "model.keras"
    command = [sys.executable, "-c", _CHILD, str(path), "keras", "full disk"]
    assert subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0
    with pytest.raises(zipfile.BadZipFile):
        _number_in(path)


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
