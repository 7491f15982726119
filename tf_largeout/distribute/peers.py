"""Other processes of a cluster: the claim of a server, and whether a process is alive."""

import atexit
import logging
import pathlib
import socket
import sys
import threading
import time
from collections.abc import Sequence

import tensorflow as tf

# The preface of an HTTP/2 client and an empty settings frame. A server answers with its
# settings, a frame of type 4.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS, _TYPE_AT = 4, 3
_RETRY_S = 0.2
_POLL_S, _LAST_S, _AGAIN_S = 1.0, 3.0, 0.1
_SERVER_IS_GONE = (
    "Server %s is gone (%s). TensorFlow calls it /job:ps/replica:0/task:%d. Restart it at the "
    "same address, then this program, which can resume from its last "
    "`tf_largeout.distribute.Backup`."
)
_TRAINER_IS_GONE = (
    "Trainer %s is gone (%s). The other trainers do its steps. After all trainers that have "
    "ended are restarted at the same addresses, they get steps again."
)


def claim(path: str, device: str, address: str, own_address: str) -> None:
    """Writes the address of this trainer to the `path` of a server on `device`.

    It raises a RuntimeError if another trainer uses the server.
    """
    with tf.device(device):
        if tf.io.matching_files(path).shape[0]:
            other = tf.io.read_file(path).numpy().decode().strip()
            raise RuntimeError(
                f"Server {address} is used by the trainer at {other}. Stop that trainer; the "
                "server is then free within a second. Or use other servers."
            )
        tf.io.write_file(path, f"{own_address}\n")


def trainer(path: pathlib.Path) -> str | None:
    """Returns the address that a trainer wrote, or None if there is none yet."""
    text = path.read_text("ascii") if path.exists() else ""
    return text.strip() if text.endswith("\n") else None


def await_server(address: str, timeout_s: float) -> str:
    """Waits for a server, and returns the address from which this machine reaches it.

    It raises an OSError if it gets no answer in time, or none of a TensorFlow server.
    """
    end, connection = time.monotonic() + timeout_s, None
    while connection is None:
        timeout_s = max(end - time.monotonic(), _RETRY_S)
        try:
            connection = socket.create_connection(_pair(address), timeout_s)
        except ConnectionRefusedError:
            if time.monotonic() + _RETRY_S > end:
                raise
            time.sleep(_RETRY_S)
    with connection:
        connection.sendall(_GREETING)
        answer = connection.recv(_TYPE_AT + 1, socket.MSG_WAITALL)
        own: str = connection.getsockname()[0]
    if len(answer) <= _TYPE_AT or answer[_TYPE_AT] != _SETTINGS:
        raise ConnectionError("another kind of server")
    return f"[{own}]" if ":" in own else own


def reason(error: BaseException | None) -> str:
    """Returns a short text for an error of a connection."""
    return getattr(error, "strerror", None) or str(error)


def fault(address: str, timeout_s: float) -> OSError | None:
    """Returns the error when connecting to an address; None if a process listens there."""
    try:
        socket.create_connection(_pair(address), timeout_s).close()
    except OSError as error:
        return error
    return None


class Watch:
    """Detects that the process at an address has ended.

    A refused connection means that the process has ended. If a process is only busy or stopped,
    the kernel accepts the connection. If there is no answer, the network may be down, so the
    peer counts as ended only after `patience_s` seconds.
    """

    def __init__(self, address: str, patience_s: float = 60.0) -> None:
        self.address = address
        self._patience_s, self._last_seen = patience_s, time.monotonic()

    def fault(self, timeout_s: float = 2.0) -> OSError | None:
        """Returns the error that shows that the peer has ended; None while it is alive."""
        found = fault(self.address, timeout_s)
        if found is None:
            self._last_seen = time.monotonic()
        if isinstance(found, ConnectionRefusedError):
            return found
        return found if time.monotonic() - self._last_seen > self._patience_s else None


_watched: dict[Watch, int | None] = {}  # number of the server; None for a trainer
_lock = threading.Lock()
_has_ended = threading.Event()


def watch(addresses: Sequence[str], trainers: Sequence[str] = ()) -> None:
    """Watches servers in a thread until this process ends; logs an error if one has ended."""
    _watched.update((Watch(one), number) for number, one in enumerate(addresses))
    _watched.update((Watch(one), None) for one in trainers)
    threading.Thread(target=_poll, name="largeout_servers", daemon=True).start()
    atexit.register(_check_at_exit)


def unwatch(addresses: Sequence[str]) -> None:
    """Stops watching servers, because this program ends them."""
    with _lock:
        for one in [one for one in _watched if one.address in addresses]:
            del _watched[one]


def _poll() -> None:
    while _watched:
        time.sleep(_POLL_S)
        _check()


def _check() -> None:
    with _lock:
        for one, number in list(_watched.items()):
            fault = one.fault()
            if fault is None:
                continue
            del _watched[one]
            _has_ended.set()
            log = logging.getLogger("tf_largeout")
            if number is None:
                log.error(_TRAINER_IS_GONE, one.address, reason(fault))
            else:
                log.error(_SERVER_IS_GONE, one.address, reason(fault), number)


def _check_at_exit() -> None:
    end = time.monotonic() + _LAST_S
    _check()
    # After an error a server may still be ending.
    while hasattr(sys, "last_value") and _watched and not _has_ended.is_set():
        if time.monotonic() > end:
            break
        time.sleep(_AGAIN_S)
        _check()


def _pair(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
