"""Logs the address of a server that has ended. TensorFlow's errors name only its number."""

import atexit
import logging
import sys
import threading
import time
from collections.abc import Sequence

from tf_largeout.distribute import peers

_POLL_S, _LAST_S, _AGAIN_S = 1.0, 3.0, 0.1

_watched: dict[peers.Watch, int | None] = {}  # number of the server; None for a trainer
_lock = threading.Lock()
_has_ended = threading.Event()


def watch(addresses: Sequence[str], trainers: Sequence[str] = ()) -> None:
    """Watches servers in a thread until this process ends, and once more at its end.

    If a server ends, an error is logged once to the logger `tf_largeout`.
    """
    _watched.update((peers.Watch(one), number) for number, one in enumerate(addresses))
    _watched.update((peers.Watch(one), None) for one in trainers)
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
            if number is None:
                _log_trainer(one.address, peers.reason(fault))
            else:
                _log_server(number, one.address, peers.reason(fault))


def _check_at_exit() -> None:
    end = time.monotonic() + _LAST_S
    _check()
    # After an error a server may still be ending.
    while hasattr(sys, "last_value") and _watched and not _has_ended.is_set():
        if time.monotonic() > end:
            break
        time.sleep(_AGAIN_S)
        _check()


def _log_server(number: int, address: str, reason: str) -> None:
    logging.getLogger("tf_largeout").error(
        "Server %s is gone (%s). TensorFlow calls it /job:ps/replica:0/task:%d. Restart it at "
        "the same address, then this program, which can resume from its last "
        "`tf_largeout.distribute.Backup`.",
        address,
        reason,
        number,
    )


def _log_trainer(address: str, reason: str) -> None:
    logging.getLogger("tf_largeout").error(
        "Trainer %s is gone (%s). The other trainers do its steps. After all trainers that "
        "have ended are restarted at the same addresses, they get steps again.",
        address,
        reason,
    )
