"""`python -m tf_largeout.distribute.server`: keeps shards of class matrices, one a machine.

It has one trainer at a time. When that has ended it starts anew, within seconds, which gives
back all memory: TensorFlow would keep what a trainer left behind for as long as it runs.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import sys
import threading
from typing import NoReturn

import tensorflow as tf

from tf_largeout.distribute import claims, cluster, peers

_NOTICE = """\
This server takes any program from whoever reaches its port: TensorFlow knows no passwords. It
listens on all networks of this machine, whatever --host says. Let a firewall, or a network of
its own, admit the trainer alone."""
_POLL_S = 0.5
# Steps of several trainers wait on a server for one another: too few threads, and all would.
_LEAST_THREADS = 64


def serve(host: str, port: int, claim: pathlib.Path) -> tf.distribute.Server:
    """Starts a server, which runs in threads of this process until that ends.

    Args:
        host: By which name or address the trainer reaches this machine.
        port: A port that is free; 0 takes one.
        claim: Where the trainer writes its own address.

    Raises:
        OSError: If the port is taken.
    """
    _require_free(port)
    claims.say(claim)
    spec = tf.train.ClusterSpec({cluster.JOB: [f"{host}:{port}"]})
    os.environ.setdefault(
        "TF_NUM_INTEROP_THREADS", str(max(_LEAST_THREADS, os.cpu_count() or 1))
    )
    try:
        return tf.distribute.Server(spec, cluster.JOB, 0, protocol="grpc")
    except tf.errors.UnknownError as error:
        raise OSError(f"TensorFlow could not listen on port {port}: {error.message}") from error


def _require_free(port: int) -> None:
    """Raises an OSError where another process listens on the port.

    TensorFlow would share it, or say no more than that it cannot.
    """
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("", port))
        except OSError as error:
            raise OSError(f"Port {port} is taken ({error.strerror}). Pass another.") from error


def main(arguments: list[str] | None = None) -> int:
    """Runs a server until SIGTERM or SIGINT; gives the exit code."""
    parser = argparse.ArgumentParser(prog="tf_largeout.distribute.server", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="0 takes one that is free")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address by which the trainer reaches this machine (default: this machine alone)",
    )
    options = parser.parse_args(arguments)
    claim = claims.new_claim()
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
    is_gone = _wait(stopped, claim)
    shutil.rmtree(claim.parent, ignore_errors=True)
    if is_gone:
        _start_anew(options.host, address.rpartition(":")[2])
    print("stopped", flush=True)
    # TensorFlow's servers cannot be joined or shut down: the process ends with what it holds.
    os._exit(0)


def _wait(stopped: threading.Event, claim: pathlib.Path) -> bool:
    """Waits for a signal, or for the end of the trainer that has this server; which it was."""
    trainer = None
    while not stopped.wait(_POLL_S):
        if trainer is None:
            address = claims.trainer(claim)
            trainer = None if address is None else peers.Watch(address)
        elif (fault := trainer.fault()) is not None:
            reason = peers.reason(fault)
            print(f"The trainer at {trainer.address} is gone: {reason}.", file=sys.stderr)
            return True
    return False


def _start_anew(host: str, port: str) -> NoReturn:
    """Becomes a server that holds nothing, at the same address."""
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > sys.stderr.fileno():
            with contextlib.suppress(OSError):  # the one of this list
                os.set_inheritable(number, False)
    module = [sys.executable, "-m", "tf_largeout.distribute.server"]
    os.execv(sys.executable, [*module, "--host", host, "--port", port])


if __name__ == "__main__":
    sys.exit(main())
