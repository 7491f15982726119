"""`connect`: connects this process to the servers that store shards."""

import os
import socket
from collections.abc import Sequence
from concurrent import futures

import tensorflow as tf

from tf_largeout.distribute import peers
from tf_largeout.ops import process_ops
from tf_largeout.variables import cluster

# TensorFlow's job names of this process, without and with asynchronous trainers.
_OWN_JOB, _COORDINATOR_JOB = "localhost", "chief"


def connect(
    addresses: Sequence[str],
    host: str | None = None,
    timeout_s: float = 15.0,
    trainers: Sequence[str] = (),
) -> None:
    """Connects this process to servers, which then store the shards of layers.

    A `LargeOutput(num_shards=K)` that is built later creates shard i, and its optimizer slots,
    on server `i % num_servers`. `fit`, `evaluate`, `top_k`, `predict`, callbacks and saving
    work as on one machine. Call it once, before models are created. If a server ends later, an
    error with its address is logged.

    ```
    tflo.distribute.connect(["10.0.0.1:4711", "10.0.0.2:4711"])
    model = keras.Sequential(
        [keras.Input([128]), tflo.layers.LargeOutput(10_000_000, num_shards=2)]
    )
    ```

    Args:
        addresses: `"host:port"` of each server, as `python -m tf_largeout.distribute.server`
            prints it after `ready`. When you resume from a checkpoint, use the same order as
            before if possible: it is faster.
        host: Name or address at which the servers reach this process. None, the default, uses
            the address from which this process reaches the first server.
        timeout_s: How long to wait for each server, in seconds. Servers may still be starting.
        trainers: Addresses of more servers. They store no shards; they run the training steps
            of `tf_largeout.distribute.fit`.

    Raises:
        ValueError: If an address is not valid or given twice, or a server has another version
            of tf_largeout or of TensorFlow, or is not a server of tf_largeout.
        ConnectionError: If a server cannot be reached.
        RuntimeError: If this process is connected to other servers, or another trainer uses a
            server.
    """
    addresses = _checked(addresses)
    trainers = _checked(trainers) if trainers else []
    everyone = _checked([*addresses, *trainers])
    if (cluster.addresses, cluster.trainers) == (addresses, trainers):
        return
    if cluster.addresses:
        raise RuntimeError(
            f"This process is connected to {', '.join(cluster.addresses + cluster.trainers)}. "
            f"Received: addresses={addresses}, trainers={trainers}. Start another process to "
            "connect to these."
        )
    own_host = _require_reachable(everyone, timeout_s)
    with socket.socket() as one:
        one.bind(("", 0))  # a free port
        own_address = f"{host or own_host}:{one.getsockname()[1]}"
    if trainers:
        _start_coordinator(addresses, trainers, own_address)
    else:
        spec = tf.train.ClusterSpec({cluster.JOB: addresses, _OWN_JOB: [own_address]})
        tf.config.experimental_connect_to_cluster(spec, job_name=_OWN_JOB, protocol="grpc")
    for job, some in ((cluster.JOB, addresses), (cluster.TRAINER_JOB, trainers)):
        for number, address in enumerate(some):
            device = cluster.device(number, job)
            path = _claim_path(device, address, everyone)
            peers.claim(path, device, address, own_address)
    cluster.addresses[:], cluster.trainers[:] = addresses, trainers
    peers.watch(addresses, trainers)


def _checked(addresses: Sequence[str]) -> list[str]:
    if isinstance(addresses, str) or not addresses:
        raise ValueError(
            "`addresses` must be a list of one server or more, such as "
            f'["10.0.0.1:4711"]. Received: addresses={addresses!r}.'
        )
    for address in addresses:
        host, _, port = str(address).rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 2**16:
            raise ValueError(f'Each of `addresses` must be "host:port". Received: {address!r}.')
    if len(set(addresses)) < len(addresses):
        raise ValueError(
            f"`addresses` must name each server once. Received: addresses={addresses}. If "
            "there are more shards than servers, a server stores several shards."
        )
    return list(addresses)


def _require_reachable(addresses: Sequence[str], timeout_s: float) -> str:
    """Returns the address from which this machine reaches the first server."""
    with futures.ThreadPoolExecutor(len(addresses)) as pool:
        calls = [pool.submit(peers.await_server, one, timeout_s) for one in addresses]
    faults = [
        f"{address} ({peers.reason(call.exception())})"
        for address, call in zip(addresses, calls, strict=True)
        if call.exception() is not None
    ]
    if faults:
        raise ConnectionError(
            f"No server of tf_largeout at {'; '.join(faults)}. Start one on that machine by "
            "python -m tf_largeout.distribute.server --host HOST --port PORT, and check that "
            "no firewall blocks it."
        )
    return calls[0].result()


def _start_coordinator(servers: list[str], trainers: list[str], own_address: str) -> None:
    """Connects this process to servers and trainers, and starts a `ClusterCoordinator`."""
    jobs = {cluster.JOB: servers, cluster.TRAINER_JOB: trainers}
    spec = tf.train.ClusterSpec({_COORDINATOR_JOB: [own_address], **jobs})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, task_type=_COORDINATOR_JOB, task_id=0, rpc_layer="grpc"
    )
    # Otherwise TensorFlow would retry a step on a server that has lost its rows.
    os.environ.setdefault("TF_COORDINATOR_IGNORE_TRANSIENT_PS_FAILURES", "0")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    cluster.coordinators[:] = [tf.distribute.coordinator.ClusterCoordinator(strategy)]


def _claim_path(device: str, address: str, addresses: Sequence[str]) -> str:
    """Returns the path of a server's claim. Raises a ValueError if its versions differ."""
    own, fix = process_ops.local_versions(), "Install the same versions on all machines."
    try:
        with tf.device(device):
            said = process_ops.server_versions().numpy().decode()
    except tf.errors.OpError as error:
        raise ValueError(
            f"All of {', '.join(addresses)} must be servers of {own}, the version of this "
            f"process. Received: {error.message.splitlines()[0]}. {fix}"
        ) from error
    found, _, path = said.partition("\n")
    if found != own:
        raise ValueError(
            f"Server {address} has {found or 'no tf_largeout'}, and this process {own}. {fix}"
        )
    return path
