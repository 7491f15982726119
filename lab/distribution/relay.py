"""Two networks of this machine with a delay between them, for kernels without `netem`.

The trainer's network is the one in which `started` is called. The relay is a process in a
second network, that of the servers, which `unshare` creates. Each network has a TUN device as
its only way out:

    trainer 192.0.2.1 -> device -> file -> [relay: wait] -> file -> device -> 192.0.2.2 servers

What a program sends to such a device can be read from the device's file. What is written to the
file comes out of the device as if it had been received. A file belongs to the network in which
it was opened, whichever process holds it: the trainer's file is opened first, and the relay
inherits it. Packets are as large as devices allow, so that a relay in Python keeps up.

The relay can also limit the rate. The token bucket of `tc` cannot replace this: it must hold
the largest packet, and sends as much without delay after each pause. A step has several pauses.

Run as a script, with the standard library alone, this file is the relay.
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
TRAINER, SERVERS = "192.0.2.1", "192.0.2.2"  # from the range reserved for documentation
_TUN = "/dev/net/tun"
_LARGEST_PACKET = 65_520
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h


@contextlib.contextmanager
def started(delay_s, megabits=0):
    """Starts a relay, and with it the servers' network; both end with the `with` block.

    Args:
        delay_s: Delay of a packet each way, in seconds.
        megabits: Rate of each way, in Mbit/s; 0 for no limit.

    Yields:
        Command prefix, as a list, that runs a command in the servers' network.

    Raises:
        OSError: If this process may not use TUN devices, or the relay does not start.
    """
    with _opened_device(TRAINER, SERVERS) as end:
        program = [sys.executable, "-I", __file__]
        with subprocess.Popen(
            ["unshare", "--net", *program, *map(str, (end.fileno(), delay_s, megabits))],
            pass_fds=[end.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:  # the relay ends when its input is closed
            if not process.stdout.readline():
                raise OSError("The relay did not start; its error message is above.")
            yield ["nsenter", "--net", "--target", str(process.pid), "--"]


def pass_on(ends, delay_s, megabits, stop):
    """Passes packets between two files until a third is readable or closed.

    Args:
        ends: Two unbuffered files; each `read` and `write` is one packet.
        delay_s: Delay of each packet in seconds.
        megabits: Rate of each way, in Mbit/s; 0 for no limit.
        stop: The third file.
    """
    ways = {end: _Way(end, other, delay_s, megabits) for end, other in (ends, ends[::-1])}
    while True:
        wait_s = min(way.wait_s() for way in ways.values())
        readable, _, _ = select.select([*ends, stop], [], [], wait_s)
        if stop in readable:
            return
        for end in readable:
            ways[end].take()
        for way in ways.values():
            way.deliver()


class _Way:
    """The packets on their way from one file to the other."""

    def __init__(self, source, target, delay_s, megabits):
        self._source, self._target, self._delay_s = source, target, delay_s
        self._s_of_byte = 8e-6 / megabits if megabits else 0.0
        self._packets = collections.deque()  # with the time when each arrives
        self._free_at = 0.0  # when the last byte has been sent

    def wait_s(self):
        """Returns the seconds until the next packet arrives; an hour if there is none."""
        return max(0.0, self._packets[0][0] - time.monotonic()) if self._packets else 3600.0

    def take(self):
        """Queues a packet after those before it."""
        packet = self._source.read(_LARGEST_PACKET)
        start = max(time.monotonic(), self._free_at)
        self._free_at = start + len(packet) * self._s_of_byte
        self._packets.append((self._free_at + self._delay_s, packet))

    def deliver(self):
        """Writes the packets that have arrived."""
        while self._packets and self._packets[0][0] <= time.monotonic():
            self._target.write(self._packets.popleft()[1])


@contextlib.contextmanager
def _opened_device(own, peer):
    """Opens a new device in this network, with address `own`, that leads to `peer`."""
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


def _main(trainer_end, delay_s, megabits):
    """Runs the relay until standard input ends."""
    _ip("link", "set", "lo", "up")
    with (
        open(trainer_end, "r+b", buffering=0) as near,
        _opened_device(SERVERS, TRAINER) as far,
    ):
        print("ready", flush=True)
        pass_on((near, far), delay_s, megabits, sys.stdin)


if __name__ == "__main__":
    _main(int(sys.argv[1]), *map(float, sys.argv[2:]))
