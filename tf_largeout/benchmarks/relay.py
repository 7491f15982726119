"""Two networks of this machine with a delay between them, for kernels that have no `netem`.

The trainer's network is the one that `started` is called in; the relay is a process in a second
network, the servers', which `unshare` makes for it. Each has a TUN device as its only way out:

    trainer 192.0.2.1 -> device -> file -> [relay: wait] -> file -> device -> 192.0.2.2 servers

What a program sends to such a device can be read from the device's file, and what is written
to the file comes out of the device as if it had been received. A file stays with the network
in which it was opened, whoever holds it: the trainer's is opened first, and the relay inherits
it. Packets are as large as a device takes them, so that a relay in Python keeps up.

Run as a program, by path and with the standard library alone, this file is the relay.
"""

import collections
import contextlib
import fcntl
import select
import struct
import subprocess
import sys
import time

DEVICE = "relay"  # its name in both networks
TRAINER, SERVERS = "192.0.2.1", "192.0.2.2"  # of a range that is kept for documentation
_TUN = "/dev/net/tun"
_LARGEST_PACKET = 65_520
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h


@contextlib.contextmanager
def started(delay_s):
    """Starts a relay, and the servers' network with it; both end with the `with`.

    Args:
        delay_s: How long a packet takes, each way, in seconds.

    Yields:
        The command, as a list, that runs what follows it in the servers' network.

    Raises:
        OSError: If there are no TUN devices for us, or the relay does not start.
    """
    with _opened_device(TRAINER, SERVERS) as end:
        relay = [sys.executable, "-I", __file__, str(end.fileno()), str(delay_s)]
        with subprocess.Popen(
            ["unshare", "--net", *relay],
            pass_fds=[end.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:  # ends with its input
            if not process.stdout.readline():
                raise OSError("The relay did not start; what it said is above.")
            yield ["nsenter", "--net", "--target", str(process.pid), "--"]


def pass_on(ends, delay_s, stop):
    """Passes packets between two ends until a third file has something to read, or is closed.

    Args:
        ends: Two unbuffered files, a packet a `read` and a `write`.
        delay_s: Seconds from the reading of a packet to its writing.
        stop: A file.
    """
    other = dict(zip(ends, reversed(ends), strict=True))
    held = collections.deque()  # (when to write, where, packet): one delay, so in this order
    while True:
        wait_s = max(0.0, held[0][0] - time.monotonic()) if held else None
        readable, _, _ = select.select([*ends, stop], [], [], wait_s)
        if stop in readable:
            return
        now = time.monotonic()
        held.extend((now + delay_s, other[end], end.read(_LARGEST_PACKET)) for end in readable)
        while held and held[0][0] <= now:
            _, end, packet = held.popleft()
            end.write(packet)


@contextlib.contextmanager
def _opened_device(own, peer):
    """The file of a new device of this network, by which address `own` reaches `peer`."""
    try:
        file = _device_file()
    except OSError as error:
        raise OSError(
            f"No TUN device could be opened ({error.strerror}). A delay needs {_TUN}, "
            "which `modprobe tun` makes, the right to read and write it, and that of an "
            "administrator in this network, which `unshare --map-root-user --net` gives."
        ) from error
    with file:
        _ip("address", "add", own, "peer", peer, "dev", DEVICE)
        _ip("link", "set", DEVICE, "mtu", str(_LARGEST_PACKET), "up")
        yield file


def _device_file():
    file = open(_TUN, "r+b", buffering=0)
    try:
        flags = _IFF_TUN | _IFF_NO_PI
        fcntl.ioctl(file, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), flags))
    except OSError:
        file.close()
        raise
    return file


def _ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


def _main(trainer_end, delay_s):
    """Is the relay, until standard input ends."""
    _ip("link", "set", "lo", "up")
    with (
        open(trainer_end, "r+b", buffering=0) as near,
        _opened_device(SERVERS, TRAINER) as far,
    ):
        print("ready", flush=True)
        pass_on((near, far), delay_s, sys.stdin)


if __name__ == "__main__":
    _main(int(sys.argv[1]), float(sys.argv[2]))
