"""The servers to which this process is connected, and the server of each shard."""

from collections.abc import Sequence

import tensorflow as tf

# Names that `ParameterServerStrategy` requires.
JOB, TRAINER_JOB = "ps", "worker"
_addresses: list[str] = []
_trainers: list[str] = []
_coordinators: list[tf.distribute.coordinator.ClusterCoordinator] = []


def addresses() -> tuple[str, ...]:
    """Addresses of the servers to which this process is connected; empty before `connect`."""
    return tuple(_addresses)


def trainers() -> tuple[str, ...]:
    """Addresses of the asynchronous trainers to which this process is connected."""
    return tuple(_trainers)


def set_addresses(addresses: Sequence[str], trainers: Sequence[str] = ()) -> None:
    """Sets the servers and the trainers to which this process is connected."""
    _addresses[:], _trainers[:] = addresses, trainers


def coordinator() -> tf.distribute.coordinator.ClusterCoordinator | None:
    """Returns the coordinator of asynchronous trainers; None without trainers."""
    return _coordinators[0] if _coordinators else None


def set_coordinator(coordinator: tf.distribute.coordinator.ClusterCoordinator) -> None:
    """Sets the coordinator of asynchronous trainers."""
    _coordinators[:] = [coordinator]


def device(number: int, job: str = JOB) -> str:
    """Returns the device of a server, or of a trainer, by number."""
    return f"/job:{job}/replica:0/task:{number}/device:CPU:0"


def device_of(shard: int) -> str | None:
    """Returns the device of a shard: server `shard % num_servers`; None for this process."""
    return device(shard % len(_addresses)) if _addresses else None


def address_of(shard: int) -> str | None:
    """Returns the address of the server of a shard; None for this process."""
    return _addresses[shard % len(_addresses)] if _addresses else None
