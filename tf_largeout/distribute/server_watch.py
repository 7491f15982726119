"""Says by its address which server has ended: TensorFlow's errors know but its number."""

import atexit
import logging
import sys
import threading
import time
from collections.abc import Sequence

from tf_largeout.distribute import peers

_POLL_S, _LAST_S, _AGAIN_S = 1.0, 3.0, 0.1


def watch(addresses: Sequence[str], trainers: Sequence[str] = ()) -> None:
    """Looks after servers until this process ends, in a thread, and once more at its end.

    A server that is gone is an error in the log `tf_largeout`, once.
    """
    watches = {
        number: peers.Watch(address) for number, address in enumerate([*addresses, *trainers])
    }
    lock = threading.Lock()

    def look() -> None:
        with lock:
            for number, one in list(watches.items()):
                fault = one.fault()
                if fault is not None:
                    del watches[number]
                    if number < len(addresses):
                        _say(number, one.address, peers.reason(fault))
                    else:
                        _say_of_trainer(one.address, peers.reason(fault))

    def keep_looking() -> None:
        while watches:
            time.sleep(_POLL_S)
            look()

    def look_at_the_end() -> None:
        end = time.monotonic() + _LAST_S
        look()
        # After an error a server may be ending still.
        while hasattr(sys, "last_value") and len(watches) == len(addresses) + len(trainers):
            if time.monotonic() > end:
                break
            time.sleep(_AGAIN_S)
            look()

    threading.Thread(target=keep_looking, name="largeout_servers", daemon=True).start()
    atexit.register(look_at_the_end)


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
