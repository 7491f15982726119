"""`python -m tf_largeout.distribute.server`: keeps shards of class matrices, one a machine."""

import argparse
import os
import signal
import socket
import sys
import threading

import tensorflow as tf

from tf_largeout.distribute import cluster
from tf_largeout.ops import process_ops

_NOTICE = """\
This server takes any program from whoever reaches its port: TensorFlow knows no passwords. It
listens on all networks of this machine, whatever --host says. Let a firewall, or a network of
its own, admit the trainer alone."""


def serve(host: str, port: int) -> tf.distribute.Server:
    """Starts a server, which runs in threads of this process until that ends.

    Args:
        host: By which name or address the trainer reaches this machine.
        port: A port that is free; 0 takes one.

    Raises:
        OSError: If the port is taken.
    """
    _require_free(port)
    process_ops.say_versions()
    spec = tf.train.ClusterSpec({cluster.JOB: [f"{host}:{port}"]})
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
    try:
        server = serve(options.host, options.port)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    stopped = threading.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: stopped.set())
    print(_NOTICE, file=sys.stderr)
    print(f"ready {server.target.removeprefix('grpc://')}", flush=True)
    while not stopped.wait(0.5):
        pass
    print("stopped", flush=True)
    # TensorFlow's servers cannot be joined or shut down: the process ends with what it holds.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
