"""Checks whether another TensorFlow process is alive, without TensorFlow."""

import socket
import time

# The preface of an HTTP/2 client and an empty settings frame. A server answers with its
# settings, a frame of type 4.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS, _TYPE_AT = 4, 3
_RETRY_S = 0.2


def await_server(address: str, timeout_s: float) -> str:
    """Waits for a server, which may still be starting.

    Returns:
        The address from which this machine reaches it.

    Raises:
        OSError: If it does not answer in time, or is not a TensorFlow server.
    """
    end = time.monotonic() + timeout_s
    while True:
        try:
            return _greet(address, max(end - time.monotonic(), _RETRY_S))
        except ConnectionRefusedError:
            if time.monotonic() + _RETRY_S > end:
                raise
        time.sleep(_RETRY_S)


def _greet(address: str, timeout_s: float) -> str:
    with socket.create_connection(_pair(address), timeout_s) as one:
        one.settimeout(timeout_s)
        one.sendall(_GREETING)
        answer = one.recv(_TYPE_AT + 1, socket.MSG_WAITALL)
        own: str = one.getsockname()[0]
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
    """Detects that a peer has ended.

    A refused connection means that the process has ended. If a process is only busy or stopped,
    the kernel accepts the connection. If there is no answer, the network may be down, so the
    peer counts as ended only after some time.

    Args:
        address: `"host:port"` of the peer.
        patience_s: Time without an answer after which the peer counts as ended, in seconds.
    """

    def __init__(self, address: str, patience_s: float = 60.0) -> None:
        self.address = address
        self._patience_s, self._last_seen = patience_s, time.monotonic()

    def fault(self, timeout_s: float = 2.0) -> OSError | None:
        """Returns the error that shows that the peer has ended; None while it is alive."""
        found = fault(self.address, timeout_s)
        if found is None:
            self._last_seen = time.monotonic()
        elif not isinstance(found, ConnectionRefusedError):
            return found if time.monotonic() - self._last_seen > self._patience_s else None
        return found


def _pair(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
