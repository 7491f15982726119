"""The network between a trainer and servers that are processes of one machine."""

import contextlib
import dataclasses
import pathlib
import socket
import statistics
import subprocess
import time

from lab.distribution import relay

_CLOSED_PORT = 1  # no program listens there in a separate network
_ROUND_TRIPS = 21


@dataclasses.dataclass(frozen=True)
class Network:
    """How a trainer, in the network of this process, reaches its servers.

    Attributes:
        device: Network device to the servers.
        host: Address of the servers.
        at_servers: Command prefix that runs a command in the network of the servers; empty if
            this is the trainer's network.
    """

    device: str = "lo"
    host: str = "127.0.0.1"
    at_servers: tuple = ()

    def num_bytes(self):
        """Returns the bytes sent so far in both directions, with IP headers."""
        for text in pathlib.Path("/proc/net/dev").read_text().splitlines():
            name, _, numbers = text.partition(":")
            if name.strip() == self.device:
                received, sent = (int(numbers.split()[column]) for column in (0, 8))
                return sent + received if self.at_servers else received
        raise RuntimeError(f"/proc/net/dev has no {self.device!r}.")

    def round_trip_ms(self):
        """Returns the median milliseconds from a packet to its answer on an idle network.

        A refused connection is one packet each way.
        """
        return statistics.median(self._refused_ms() for _ in range(_ROUND_TRIPS))

    def _refused_ms(self):
        with socket.socket() as caller:
            start = time.perf_counter()
            try:
                caller.connect((self.host, _CLOSED_PORT))
            except ConnectionRefusedError:
                return 1e3 * (time.perf_counter() - start)
        raise RuntimeError(f"A program listens on port {_CLOSED_PORT} of {self.host}.")


@contextlib.contextmanager
def opened(delay_ms, megabits=0):
    """Opens a `Network`: the loopback device, or a device that delays packets.

    Args:
        delay_ms: Milliseconds each way, or None for the loopback device.
        megabits: Limit of the rate in Mbit/s, for each way; 0 for no limit. On the loopback
            device, which receives what it sends, the limit holds for the sum of both ways.

    Raises:
        OSError: If this process may not use TUN devices.
    """
    if delay_ms is None:
        _limit_loopback(megabits)
        yield Network()
        return
    with relay.started(delay_ms / 1e3, megabits) as at_servers:
        yield Network(relay.DEVICE, relay.SERVERS, tuple(at_servers))


def _limit_loopback(megabits):
    at_root = ["dev", "lo", "root"]
    remove = ["tc", "qdisc", "del", *at_root]
    subprocess.run(remove, check=False, stderr=subprocess.DEVNULL)  # if there is a limit
    if megabits:
        rate = ["rate", f"{megabits}mbit", "burst", "256kb", "latency", "200ms"]
        subprocess.run(["tc", "qdisc", "add", *at_root, "tbf", *rate], check=True)
