"""Asynchronous training with several trainers, also if a trainer ends."""

import keras
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.distribute import trainer_process
from tf_largeout.distribute.local_servers import local_servers
from tf_largeout.variables import cluster

STEPS, BATCH = 60, 32


@pytest.fixture
def coordinator(monkeypatch):
    """Simulates `connect` with trainers."""
    monkeypatch.setattr(cluster, "coordinators", [object()])


def data(seed):
    return tf.data.Dataset.from_tensors((tf.zeros([4, 3]), tf.zeros([4], tf.int64))).repeat()


def new_model(is_built=True, is_compiled=True):
    layers = [keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input([3]), *layers] if is_built else layers)
    if is_compiled:
        model.compile(tflo.optimizers.LazyAdam(), "mse")
    return model


def test_without_trainers_fit_raises_an_error():
    with pytest.raises(RuntimeError, match="There are no trainers. Call .*trainers="):
        tflo.distribute.fit(new_model(), data, 3)


@pytest.mark.usefixtures("coordinator")
@pytest.mark.parametrize(
    "arguments, match",
    [
        ({"model": new_model(is_built=False)}, "Received: model 'sequential"),
        ({"model": new_model(is_compiled=False)}, "Received: model 'sequential"),
        ({"dataset_fn": data(0)}, "`dataset_fn` must be a function of a seed"),
        ({"steps_per_epoch": 0}, "`steps_per_epoch`"),
        ({"epochs": 0}, "`epochs`"),
    ],
)
def test_invalid_arguments_raise_an_error(arguments, match):
    valid = {"model": new_model(), "dataset_fn": data, "steps_per_epoch": 3}
    with pytest.raises(ValueError, match=match):
        tflo.distribute.fit(**valid | arguments)


def test_a_trainer_that_is_also_a_server_raises_an_error():
    with pytest.raises(ValueError, match="name each server once"):
        tflo.distribute.connect(["a:1"], trainers=["b:1", "a:1"])


def run_trainers(folder, killed=None):
    """Runs a server and two trainers and may kill one; returns addresses and the run."""
    names = ["server", "trainer", "other trainer"]
    with local_servers(3) as servers:
        addresses = dict(zip(names, [one.address for one in servers], strict=True))
        pids = dict(zip(names, [one.pid for one in servers], strict=True))
        arguments = [str(folder), str(pids.get(killed, 0)), *addresses.values()]
        run = trainer_process.run("asynchronous_trainer", *arguments)
    return addresses, run


@pytest.mark.slow
@pytest.mark.parametrize("killed", [None, "trainer"])
def test_two_trainers_train_all_steps(tmp_path, killed):
    """Step counts are exact, and losses, metrics and backups work, also if one is killed."""
    addresses, run = run_trainers(tmp_path, killed)
    found = trainer_process.found(run)
    history = found["history"]
    names = {"loss", "precision_at_1", "sparse_top_k_categorical_accuracy"}
    assert set(history) == names | {f"val_{name}" for name in names}
    assert history["precision_at_1"][-1] > 0.9
    assert len(history["loss"]) == 3 and history["loss"] == sorted(history["loss"])[::-1]
    assert history["val_precision_at_1"][-1] > 0.9
    assert found["iterations"] == 3 * STEPS
    assert found["counted"] == STEPS * BATCH
    assert found["restored"] == [3, 3 * STEPS, True]
    assert found["places"] == ["/job:ps/replica:0/task:0/device:CPU:0"]
    assert "must be endless. Received: a `dataset_fn` whose dataset has ended" in found["ended"]
    if killed:
        assert f"Trainer {addresses[killed]} is gone" in run.stderr


@pytest.mark.slow
def test_a_killed_server_ends_the_run_with_an_error(tmp_path):
    addresses, run = run_trainers(tmp_path, "server")
    assert run.returncode != 0 and "UnavailableError" in run.stderr
    assert f"Server {addresses['server']} is gone" in run.stderr
