"""`python -m tf_largeout.distribute.server`: stores shards of class matrices, one per machine.

A server has one trainer at a time. When the trainer has ended, the server restarts within
seconds. This frees all memory: TensorFlow keeps the variables of a trainer until the process
ends.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import sys
import tempfile
import threading
from typing import NoReturn

import tensorflow as tf

from tf_largeout.distribute import peers
from tf_largeout.ops import process_ops
from tf_largeout.variables import cluster

_NOTICE = """\
This server runs any program that it receives at its port: TensorFlow has no passwords. It
listens on all networks of this machine, whatever --host is. Use a firewall or a separate
network, so that only the trainer can reach it."""
_POLL_S = 0.5
# Steps of several trainers wait for each other on a server. With few threads, all threads
# would wait.
_LEAST_THREADS = 64


def serve(host: str, port: int, claim: pathlib.Path) -> tf.distribute.Server:
    """Starts a server, which runs in threads of this process until the process ends.

    The trainer reaches it at `host`, and writes its address to the file `claim`. A `port` of 0
    selects a free one. If the port is used, an OSError is raised.
    """
    with socket.socket() as one:  # TensorFlow would share the port with another process
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("", port))
        except OSError as error:
            message = f"Port {port} is used ({error.strerror}). Pass another port."
            raise OSError(message) from error
    process_ops.publish_versions(str(claim))
    spec = tf.train.ClusterSpec({cluster.JOB: [f"{host}:{port}"]})
    os.environ.setdefault(
        "TF_NUM_INTEROP_THREADS", str(max(_LEAST_THREADS, os.cpu_count() or 1))
    )
    try:
        return tf.distribute.Server(spec, cluster.JOB, 0, protocol="grpc")
    except tf.errors.UnknownError as error:
        raise OSError(f"TensorFlow could not listen on port {port}: {error.message}") from error


def main(arguments: list[str] | None = None) -> int:
    """Runs a server until SIGTERM or SIGINT; returns the exit code."""
    parser = argparse.ArgumentParser(prog="tf_largeout.distribute.server", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="0 selects a free port")
    what = "address at which the trainer reaches this machine (default: only from here)"
    parser.add_argument("--host", default="127.0.0.1", help=what)
    options = parser.parse_args(arguments)
    claim = pathlib.Path(tempfile.mkdtemp(prefix="largeout_server_")) / "trainer"
    try:
        server = serve(options.host, options.port, claim)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    stopped = threading.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: stopped.set())
    print(_NOTICE, file=sys.stderr)
    address = server.target.removeprefix("grpc://")
    print(f"ready {address}", flush=True)
    trainer_ended = _wait(stopped, claim)
    shutil.rmtree(claim.parent, ignore_errors=True)
    if trainer_ended:
        _restart(options.host, address.rpartition(":")[2])
    print("stopped", flush=True)
    # A TensorFlow server cannot be joined or shut down, so the process ends with it.
    os._exit(0)


def _wait(stopped: threading.Event, claim: pathlib.Path) -> bool:
    """Waits for a signal or the end of the trainer; returns whether it was the trainer."""
    trainer = None
    while not stopped.wait(_POLL_S):
        if trainer is None:
            address = peers.trainer(claim)
            trainer = None if address is None else peers.Watch(address)
        elif (fault := trainer.fault()) is not None:
            reason = peers.reason(fault)
            print(f"The trainer at {trainer.address} is gone: {reason}.", file=sys.stderr)
            return True
    return False


def _restart(host: str, port: str) -> NoReturn:
    """Replaces this process by a new server at the same address."""
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > sys.stderr.fileno():
            with contextlib.suppress(OSError):  # the descriptor of this list
                os.set_inheritable(number, False)
    module = [sys.executable, "-m", "tf_largeout.distribute.server"]
    os.execv(sys.executable, [*module, "--host", host, "--port", port])


if __name__ == "__main__":
    sys.exit(main())
