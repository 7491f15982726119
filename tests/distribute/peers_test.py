"""Detection of peers that have ended, and messages."""

import socket
import threading
import time

import pytest

from tf_largeout.distribute import peers

SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def test_await_server_waits_until_the_server_has_started():
    port = free_port()

    def serve():
        time.sleep(0.5)
        with socket.create_server(("127.0.0.1", port)) as one, one.accept()[0] as caller:
            caller.sendall(SETTINGS)
            time.sleep(0.2)

    threading.Thread(target=serve, daemon=True).start()
    assert peers.await_server(f"127.0.0.1:{port}", 10) == "127.0.0.1"


def test_the_timeout_limits_the_wait_for_a_missing_server():
    start = time.monotonic()
    with pytest.raises(ConnectionRefusedError):
        peers.await_server(f"127.0.0.1:{free_port()}", 0.5)
    assert 0.2 < time.monotonic() - start < 5


def test_a_peer_has_a_fault_after_its_process_has_ended():
    with socket.create_server(("127.0.0.1", 0)) as one:
        watch = peers.Watch(f"127.0.0.1:{one.getsockname()[1]}")
        assert watch.fault() is None
    assert isinstance(watch.fault(), ConnectionRefusedError)


def test_a_silent_peer_has_a_fault_only_after_the_patience(monkeypatch):
    silent = TimeoutError("timed out")
    monkeypatch.setattr(peers, "fault", lambda *_: silent)
    assert peers.Watch("a:1", patience_s=60).fault() is None
    assert peers.Watch("a:1", patience_s=-1).fault() is silent


def test_unwatched_servers_are_not_reported(caplog):
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        left, missed = (f"127.0.0.1:{each.getsockname()[1]}" for each in (one, other))
        peers.watch([left, missed])
        peers.unwatch([left])
    end = time.monotonic() + 20
    while missed not in caplog.text and time.monotonic() < end:
        time.sleep(0.1)
    assert f"Server {missed} is gone" in caplog.text and left not in caplog.text
