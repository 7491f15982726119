"""Says by its address which server has ended: TensorFlow's errors know but its number."""

import atexit
import logging
import sys
import threading
import time
from collections.abc import Sequence

from tf_largeout.distribute import peers

_POLL_S, _LAST_S, _AGAIN_S = 1.0, 3.0, 0.1

_watched: dict[peers.Watch, int | None] = {}  # the number of a server; None for a trainer
_lock = threading.Lock()
_one_is_gone = threading.Event()


def watch(addresses: Sequence[str], trainers: Sequence[str] = ()) -> None:
    """Looks after servers until this process ends, in a thread, and once more at its end.

    A server that is gone is an error in the log `tf_largeout`, once.
    """
    _watched.update((peers.Watch(one), number) for number, one in enumerate(addresses))
    _watched.update((peers.Watch(one), None) for one in trainers)
    threading.Thread(target=_keep_looking, name="largeout_servers", daemon=True).start()
    atexit.register(_look_at_the_end)


def leave(addresses: Sequence[str]) -> None:
    """Looks after some of them no more: this program ends them itself."""
    with _lock:
        for one in [one for one in _watched if one.address in addresses]:
            del _watched[one]


def _keep_looking() -> None:
    while _watched:
        time.sleep(_POLL_S)
        _look()


def _look() -> None:
    with _lock:
        for one, number in list(_watched.items()):
            fault = one.fault()
            if fault is None:
                continue
            del _watched[one]
            _one_is_gone.set()
            if number is None:
                _say_of_trainer(one.address, peers.reason(fault))
            else:
                _say(number, one.address, peers.reason(fault))


def _look_at_the_end() -> None:
    end = time.monotonic() + _LAST_S
    _look()
    # After an error a server may be ending still.
    while hasattr(sys, "last_value") and _watched and not _one_is_gone.is_set():
        if time.monotonic() > end:
            break
        time.sleep(_AGAIN_S)
        _look()


def _say(number: int, address: str, reason: str) -> None:
    logging.getLogger("tf_largeout").error(
        "Server %s is gone (%s); TensorFlow calls it /job:ps/replica:0/task:%d. Start it "
        "again at the same address, and then this program, which can go on from its last "
        "`tf_largeout.distribute.Backup`.",
        address,
        reason,
        number,
    )


def _say_of_trainer(address: str, reason: str) -> None:
    logging.getLogger("tf_largeout").error(
        "Trainer %s is gone (%s); others take its steps. Started again at the same address, it "
        "takes part, once all that have ended are back.",
        address,
        reason,
    )
