import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from lab.distribution import relay
from tests.lab.networks import UNSHARE, needs_relay

DELAY_S = 0.05
# Sends `size` bytes to a server behind the relay, which sends them back.
ROUND = """
import os, socket, subprocess, sys, time
from lab.distribution import network
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
with network.opened({delay_ms}, {megabits}) as wire:
    echo = [*wire.at_servers, sys.executable, "-c", {echo!r}]
    server = subprocess.Popen(echo, stdout=subprocess.PIPE)
    server.stdout.readline()
    content, start = os.urandom({size}), time.monotonic()
    before = wire.num_bytes()
    with socket.create_connection((wire.host, 4711)) as peer:
        peer.sendall(content)
        peer.shutdown(socket.SHUT_WR)
        back = b"".join(iter(lambda: peer.recv(1 << 20), b""))
    print(back == content, time.monotonic() - start, wire.num_bytes() - before)
    print(wire.round_trip_ms())
    server.wait()
"""
ECHO = """
import socket
listener = socket.create_server(("", 4711))
print("ready", flush=True)
peer, _ = listener.accept()
content = b"".join(iter(lambda: peer.recv(1 << 20), b""))
peer.sendall(content)
peer.close()
"""


@pytest.fixture
def ends(request):
    """Two sockets with a relay between them; the parameter is its rate in Mbit/s."""
    megabits = getattr(request, "param", 0)
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    files = [inner.makefile("rwb", buffering=0) for _, inner in pairs]
    stop, stopper = os.pipe()
    thread = threading.Thread(target=relay.pass_on, args=(files, DELAY_S, megabits, stop))
    thread.start()
    yield [outer for outer, _ in pairs]
    os.close(stopper)
    thread.join(timeout=10)
    assert not thread.is_alive()
    os.close(stop)
    for each in (*files, *(one for pair in pairs for one in pair)):
        each.close()


def test_packets_arrive_complete_in_order_and_delayed_in_both_directions(ends):
    packets = [bytes([number]) * (number + 1) for number in range(100)]
    for source, target in (ends, reversed(ends)):
        start = time.monotonic()
        for packet in packets:
            source.send(packet)
        assert [target.recv(200) for _ in packets] == packets
        assert time.monotonic() - start >= DELAY_S


def test_delays_of_packets_overlap(ends):
    source, target = ends
    start = time.monotonic()
    for _ in range(100):
        source.send(b"packet")
    for _ in range(100):
        target.recv(10)
    assert time.monotonic() - start < 50 * DELAY_S


@pytest.mark.slow
@pytest.mark.parametrize("ends", [0.4], indirect=True)
def test_the_rate_limits_each_direction_before_the_delay(ends):
    packet, number = bytes(1_000), 40
    start = time.monotonic()
    for source in ends:
        for _ in range(number):
            source.send(packet)
    for target in ends:
        for count in range(1, number + 1):
            target.recv(len(packet))
            assert time.monotonic() - start >= DELAY_S + count * 8 * len(packet) / 0.4e6
    both_in_turn = 2 * number * 8 * len(packet) / 0.4e6
    assert time.monotonic() - start < both_in_turn


def test_without_tun_devices_the_error_says_what_is_needed(monkeypatch):
    monkeypatch.setattr(relay, "_TUN", "/nowhere/tun")
    with pytest.raises(OSError, match=r"No such file.* needs /nowhere/tun, .*modprobe tun"):
        relay.started(0.001).__enter__()


@pytest.mark.slow
@needs_relay
def test_a_relay_that_fails_to_start_raises_an_error():
    program = "from lab.distribution import relay; relay.started('soon').__enter__()"
    said = in_network(program)
    assert said.returncode and "The relay did not start" in said.stderr


@pytest.mark.slow
@needs_relay
def test_a_round_trip_takes_two_delays_and_loses_no_byte():
    equal, _, sent, round_trip_ms = echoed(size=5_000_000, delay_ms=20, megabits=0)
    assert equal and 1 <= sent / 10_000_000 < 1.05
    assert 40 <= round_trip_ms < 80


@pytest.mark.slow
@needs_relay
def test_a_rate_limits_each_direction():
    equal, seconds, _, _ = echoed(size=2_000_000, delay_ms=0, megabits=50)
    assert equal and seconds > 2 * 8 * 2_000_000 / 50e6


def echoed(**settings):
    lines = in_network(ROUND.format(echo=ECHO, **settings), check=True).stdout.split()
    equal, seconds, sent, round_trip_ms = lines
    return equal == "True", float(seconds), int(sent), float(round_trip_ms)


def in_network(program, check=False):
    command = [*UNSHARE, sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=check, timeout=120)
