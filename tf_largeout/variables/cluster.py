"""The servers to which this process is connected, and the server of each shard."""

import tensorflow as tf

# Names that `ParameterServerStrategy` requires.
JOB, TRAINER_JOB = "ps", "worker"
# What `connect` has set: addresses of servers and of asynchronous trainers, and the
# coordinator of the trainers, if there are any.
addresses: list[str] = []
trainers: list[str] = []
coordinators: list[tf.distribute.coordinator.ClusterCoordinator] = []


def device(number: int, job: str = JOB) -> str:
    """Returns the device of a server, or of a trainer, by number."""
    return f"/job:{job}/replica:0/task:{number}/device:CPU:0"


def device_of(shard: int) -> str | None:
    """Returns the device of a shard: server `shard % num_servers`; None for this process."""
    return device(shard % len(addresses)) if addresses else None


def address_of(shard: int) -> str | None:
    """Returns the address of the server of a shard; None for this process."""
    return addresses[shard % len(addresses)] if addresses else None
