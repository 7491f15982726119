"""`local_servers`: servers as processes of this machine, for trials and tests."""

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

from tf_largeout.distribute import peers

_READY = "ready "


class LocalServer(NamedTuple):
    """A server on this machine: its address for `connect`, and the id of its process."""

    address: str
    pid: int


@contextlib.contextmanager
def local_servers(
    count: int, host: str = "127.0.0.1", prefix: Sequence[str] = ()
) -> Iterator[list[LocalServer]]:
    """Context with `count` servers on free ports of this machine; they end with the context.

    The trainer reaches them at `host`. `prefix` are the first words of the command of each
    server, a program that replaces itself by the rest, as `nsenter --net=FILE` does. A server
    that does not start raises a RuntimeError with its output.
    """
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(count)]
        module = [sys.executable, "-m", "tf_largeout.distribute.server"]
        command = [*prefix, *module, "--host", host, "--port", "0"]
        servers = [
            stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
            )
            for log in logs
        ]
        for server in servers:
            stack.callback(server.terminate)  # runs before the wait for the end of the servers
        ready = [_when_ready(*one) for one in zip(servers, logs, strict=True)]
        stack.callback(peers.unwatch, [one.address for one in ready])
        yield ready


def _when_ready(server: "subprocess.Popen[str]", log: IO[str]) -> LocalServer:
    line = server.stdout.readline()  # type: ignore[union-attr]  # it is a pipe
    if not line.startswith(_READY):
        log.seek(0)
        raise RuntimeError(f"A server did not start: {line}{log.read()}")
    return LocalServer(line.removeprefix(_READY).strip(), server.pid)
