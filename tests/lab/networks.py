"""Marks for tests that need network namespaces or TUN devices."""

import subprocess

import pytest

UNSHARE = ["unshare", "-rn"]


def _runs(command):
    try:
        call = subprocess.run([*UNSHARE, "sh", "-c", command], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return call.returncode == 0


needs_network = pytest.mark.skipif(
    not _runs("ip link set lo up && tc qdisc show"),
    reason="needs a network namespace (unshare, ip, tc)",
)
needs_relay = pytest.mark.skipif(
    not _runs("unshare --net true && ip tuntap add dev relay mode tun"),
    reason="needs two network namespaces and TUN devices (unshare, ip, /dev/net/tun)",
)
