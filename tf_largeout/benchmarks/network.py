"""The network between a trainer and servers that are processes of one machine."""

import contextlib
import dataclasses
import pathlib
import socket
import statistics
import subprocess
import time

from tf_largeout.benchmarks import relay

_CLOSED_PORT = 1  # in a network of our own nobody listens there
_ROUND_TRIPS = 21


@dataclasses.dataclass(frozen=True)
class Network:
    """How a trainer, in the network of this process, reaches its servers.

    Attributes:
        device: Network device by which it does.
        host: Address of the servers.
        at_servers: Command that runs what follows it in the network of the servers; empty
            where that is the trainer's.
    """

    device: str = "lo"
    host: str = "127.0.0.1"
    at_servers: tuple = ()

    def num_bytes(self):
        """All bytes that went either way so far, with the headers of IP."""
        for text in pathlib.Path("/proc/net/dev").read_text().splitlines():
            name, _, numbers = text.partition(":")
            if name.strip() == self.device:
                received, sent = (int(numbers.split()[column]) for column in (0, 8))
                return sent + received if self.at_servers else received
        raise RuntimeError(f"/proc/net/dev has no {self.device!r}.")

    def limit(self, megabits):
        """Limits the rate, in Mbit/s; 0 is no limit.

        With a network of their own, servers send at that rate and receive at that rate. On
        the loopback device, where whatever is sent is received, the limit is that of the sum.
        """
        rate = ["rate", f"{megabits}mbit", "burst", "256kb", "latency", "200ms"]
        for end in {(), self.at_servers}:
            subprocess.run(  # which fails where there is no limit
                [*end, "tc", "qdisc", "del", "dev", self.device, "root"],
                check=False,
                stderr=subprocess.DEVNULL,
            )
            if megabits:
                add = [*end, "tc", "qdisc", "add", "dev", self.device, "root", "tbf"]
                subprocess.run([*add, *rate], check=True)

    def round_trip_ms(self):
        """Median milliseconds from a packet to its answer, of an idle network.

        A connection that is refused is a packet there, and one back.
        """
        return statistics.median(self._refused_ms() for _ in range(_ROUND_TRIPS))

    def _refused_ms(self):
        with socket.socket() as caller:
            start = time.perf_counter()
            try:
                caller.connect((self.host, _CLOSED_PORT))
            except ConnectionRefusedError:
                return 1e3 * (time.perf_counter() - start)
        raise RuntimeError(f"Somebody listens on port {_CLOSED_PORT} of {self.host}.")


@contextlib.contextmanager
def opened(delay_ms):
    """A `Network`: the loopback device, or one whose packets take so long each way.

    Args:
        delay_ms: Milliseconds, or None for the loopback device.

    Raises:
        OSError: If there are no TUN devices for us.
    """
    if delay_ms is None:
        yield Network()
        return
    with relay.started(delay_ms / 1e3) as at_servers:
        yield Network(relay.DEVICE, relay.SERVERS, tuple(at_servers))
